"""Verify an export of holdlog's log without holdlog: python3 verify_log.py FILE [--checkpoint FILE]

The digest of an event is SHA-256 of the digest before it and the event's hash. That hash is SHA-256 of the header (six
lines: position, stream, version, topic, time in microseconds since 1970, meta) and the hash of the payload, which is
SHA-256 of salt and payload. An event without payload was redacted, which a later event says, or exported without
values: its hash is left. A checkpoint is a line `position digest time` that was kept elsewhere, the last of its file:
the log must contain it. Prints one line; exit code 0 if all of it verifies, else 1. The export of a part says nothing
of the rest.
"""

import json
import sys
from hashlib import sha256

HEADER = ("position", "stream", "version", "topic", "at", "meta")


def verify(lines, checkpoint):
    """Returns how many events there are, and the last position. Raises ValueError for the first problem."""
    about = json.loads(next(lines))
    require(about["holdlog_export"] == 1, "unknown format")
    position, digest = about["first"] - 1, about["previous_digest"]
    require(position or digest == "0" * 64, "the first event must follow zeros")
    is_found, redacted = checkpoint in (None, (position, digest)), set()
    while "position" in (event := json.loads(next(lines))):
        position += 1
        require(event["position"] == position, f"position {position}: the event is missing")
        has_text = "payload" in event
        require(
            has_text != ("payload_hash" in event), f"position {position}: has a text and the hash of one, or neither"
        )
        hashed = bytes.fromhex(event["salt" if has_text else "payload_hash"])
        if has_text:
            hashed = sha256(hashed + event["payload"].encode()).digest()
        else:
            redacted.add(position)
        header = "".join(f"{event[name]}\n" for name in HEADER)
        digest = sha256(bytes.fromhex(digest) + sha256(header.encode() + hashed).digest()).hexdigest()
        require(event["digest"] == digest, f"position {position}: the event was changed")
        is_found |= checkpoint == (position, digest)
        if event["topic"] == "TextsRedacted":
            for target in json.loads(event["meta"])["positions"]:
                require(target < about["first"] or target in redacted, f"position {target}: a redacted text is back")
                redacted.discard(target)
    is_end = event == {"end": position, "digest": digest} and about["last"] == position and next(lines, None) is None
    require(is_end, f"position {position}: the export does not end as it says")
    is_whole = about["first"] == 1 and position == about["log_end"] and about.get("values", True)
    require(not (is_whole and redacted), f"position {min(redacted, default=0)}: a text is gone, and no event says so")
    require(is_found, "the log does not contain the checkpoint")
    return position - about["first"] + 1, position


def require(holds, problem):
    if not holds:
        raise ValueError(problem)


def main(file="-", *options):
    checkpoint = None
    if file.startswith("-") or options[:1] not in ((), ("--checkpoint",)) or len(options) not in (0, 2):
        raise SystemExit(__doc__)
    try:
        if options:
            checkpoint_file = options[1]
            with open(checkpoint_file, encoding="utf-8") as text:
                position, digest, *_ = text.read().strip().rpartition("\n")[2].split()
            checkpoint = (int(position), digest)
        with open(file, encoding="utf-8") as lines:
            count, last = verify(lines, checkpoint)
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, OSError) as problem:
        raise SystemExit(f"{file}: not verified: {str(problem) or 'the export was cut'}") from None
    print(f"{file}: {count} events up to position {last} verify")


if __name__ == "__main__":
    main(*sys.argv[1:])
