"""The rules of holdlog: events, commands, deciders, refusals and ports. No I/O, clock or id generation."""
