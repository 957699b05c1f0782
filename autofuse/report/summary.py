"""A plan in a few lines: kernels, times, and what was gained."""

from __future__ import annotations

from typing import Any

from autofuse.plan.document import PlanDocument
from autofuse.report.explanation import certificate_data, certificate_lines
from autofuse.report.quantities import microseconds, table


def summarise(document: PlanDocument) -> dict[str, Any]:
    """Name, kernels and certificate as plain data."""
    certificate = document.certificate
    return {
        "name": document.name,
        "graph_digest": document.graph_digest,
        "kernels": [
            {
                "name": kernel.name,
                "kind": kernel.kind,
                "nodes": len(kernel.nodes),
                "predicted_us": kernel.predicted_us,
                "measured_us": kernel.measured_us,
                "bound": kernel.bound,
            }
            for kernel in (document.kernels[launch.kernel] for launch in document.order)
        ],
        "certificate": None if certificate is None else certificate_data(certificate),
        "notes": list(document.notes),
    }


def render(document: PlanDocument) -> str:
    """The summary as text."""
    kernels = summarise(document)["kernels"]
    rows = [
        (
            kernel["name"],
            kernel["kind"],
            _time(kernel["predicted_us"]),
            _time(kernel["measured_us"]),
            kernel["bound"] or "-",
        )
        for kernel in kernels
    ]
    lines = [f"{document.name}: {len(kernels)} kernel{'s' * (len(kernels) != 1)}"]
    lines += table(("kernel", "kind", "predicted", "measured", "bound by"), rows).rstrip("\n").split("\n")
    if document.certificate is not None:
        lines += certificate_lines(certificate_data(document.certificate))
    lines += [f"note: {note}" for note in document.notes]
    return "\n".join(lines) + "\n"


def _time(us: float | None) -> str:
    return "-" if us is None else microseconds(us)
