"""Measuring on a GPU that is not there."""

from click.testing import CliRunner

from tiercel.cli import main


def test_a_gpu_that_is_not_here_is_not_measured():
    sizes = ("4096", "4096", "4096")
    found = CliRunner().invoke(main, ["explain", *sizes, "--device", "NVIDIA H200", "--measure"])
    assert found.exit_code != 0
    assert "this machine has none" in found.output
