"""`holdlog demo`: the story, its actors, its screen and its picture."""
