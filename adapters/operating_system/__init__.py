"""Operating system services, and what processes on one machine share: write lock, notifications, presence."""
