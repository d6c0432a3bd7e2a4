"""All launches of one fused product, ready to repeat."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiercel.targets.hopper.fused.workspace import Workspace
from tiercel.targets.hopper.launching.driver import clear_words
from tiercel.targets.hopper.launching.launch import Launch

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class FusedLaunch:
    """All launches of one product, in order, ready to repeat."""

    before: tuple[Launch, ...]  # planes and measurements that the kernel leaves to others
    multiply: Launch
    workspace: Workspace
    kept: tuple[torch.Tensor, ...]  # what else the launches point to

    def run(self, stream: int) -> None:
        """Enqueue."""
        flags = self.workspace.flags
        clear_words(flags.data_ptr(), flags.numel(), stream)
        self.run_cleared(stream)

    def addresses_only(self) -> FusedLaunch:
        """The same launches; they do not keep alive what they point to."""
        nothing = Workspace(*(x.new_empty(0) for x in self.workspace))
        return replace(self, workspace=nothing, kept=())

    def run_cleared(self, stream: int) -> None:
        """The same where the workspace's flags are zero already."""
        for launch in (*self.before, self.multiply):
            launch.run(stream)
