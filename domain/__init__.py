"""What holdlog decides: events, commands, deciders, refusals and ports. No I/O, no clock, no ids made here."""
