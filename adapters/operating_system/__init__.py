"""What the machine gives, and what processes on one machine share: the gate, bells, presence."""
