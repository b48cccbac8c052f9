"""Other webhooks that review after ours, each for StatefulSets that are named."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from tests.world.hooks import Registration
from tests.world.reviews import Reviewer, Verdict
from tests.world.world import World

Later = Mapping[str, tuple[Verdict, Sequence[str]]]
"""By a word for the webhook's name: its verdict, and the sets that it reviews."""


@asynccontextmanager
async def reviewed_later(world: World, verdicts: Later) -> AsyncIterator[Reviewer]:
    """Let webhooks review the sets that are named with each verdict, after the mutating ones.

    They are at work inside the block; that costs the first set of each some dry runs.
    """
    async with Reviewer(world.plane.pki) as reviewer:
        for word, (_, sets) in verdicts.items():
            hook = f"later-{word}"
            expression = f"object.metadata.name in {list(sets)}"
            wanted = Registration(
                port=reviewer.port,
                hooks=(hook,),
                labels={},
                ca_bundle=world.plane.pki.ca.read_bytes(),
                webhook_fields={"matchConditions": [{"name": "named", "expression": expression}]},
            )
            await (await world.register(wanted)).wait_called(sets[0])
        reviewer.seen.clear()
        # Only now: a probe would have to wait for one that says nothing.
        reviewer.by_path |= {
            f"/admission/later-{word}": verdict for word, (verdict, _) in verdicts.items()
        }
        yield reviewer
