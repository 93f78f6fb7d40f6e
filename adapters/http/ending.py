"""That this server is about to end."""


class Ending:
    """`began`: from then on it takes no new work, and whoever spreads requests should choose another server."""

    began = False
