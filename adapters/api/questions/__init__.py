"""Questions that a person asks after the fact: who held what, who collided with whom, who did what when."""
