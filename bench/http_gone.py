from collections.abc import Iterator

from bench.bench import Bench
from bench.figures import Figure


def run(bench: Bench) -> Iterator[Figure]:
    yield from ()
