"""What decides what code a plan becomes."""

from autofuse.runtime import environment
from autofuse.targets import registry


def test_the_code_of_every_target_counts(monkeypatch):
    """Wherever it lies: what was decided for a target must not outlive its code."""
    read = []
    monkeypatch.setattr(environment, "_package", lambda name: read.append(name) or ())
    environment.fingerprint.__wrapped__()
    for module, _ in registry._BACKENDS.values():
        folder = "/".join(module.split(".")[1:])
        assert any(folder.startswith(f"{name}/") for name in read), folder
