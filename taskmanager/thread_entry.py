"""What a TaskManager knows of one of its PipelineThreads."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_pipeline.common.protocol.status import ThreadState
from kafka_pipeline.common.protocol.suspects import Death


@dataclass(slots=True)
class ThreadEntry:
    """A PipelineThread, of which the TaskManager hears, and which it ends if it hangs."""

    state: ThreadState = ThreadState.STARTING
    heard_at_ms: int = 0
    connected_at_ms: int = 0
    launch_at_ms: int | None = None
    start_by_ms: int = 0
    waits: bool = False
    """Whether it was launched so long ago that the delay was reported."""
    failures: int = 0
    hang_steps: int = 0
    """The last step of the reaction to a hang: its stacks are requested first, then it is
    killed."""
    ends_since: str = ""
    """The reason for which its worker is ending itself, if it is."""
    death: Death | None = None
    """How its worker process ended, and in which calls."""
    is_leaving: bool = False
    """Whether it was asked to end, as a spare without tasks, or to start with other code."""

    @property
    def end(self) -> str:
        """How it ended, with the calls that were in progress."""
        if self.ends_since:
            return f"was ended, since {self.ends_since}"
        end = "hung and was ended" if self.hang_steps else "died"
        death = self.death
        if death is None:
            return end
        during = f"during {death.place}" if death.calls else "outside of user code"
        return f"{end}, {during}" if self.hang_steps else f"{end} ({death.how}, {during})"
