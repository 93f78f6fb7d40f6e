"""What a request goes through before anybody looks at what it wants: bounds, limits, origins."""
