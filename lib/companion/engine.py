"""A papermill engine that stops a notebook whose output grows without bound."""

from __future__ import annotations

from typing import Any

from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.utils import remove_args

from companion.execution import OutputMeter


class MeteredClient(PapermillNotebookClient):
    """papermill's client, with its output counted."""

    meter: OutputMeter

    def process_message(self, msg: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        self.meter.add(msg)
        return super().process_message(msg, *args, **kwargs)


class MeteredEngine(NBClientEngine):
    """papermill's engine, with ``MeteredClient``."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, label: str = "notebook", **kwargs: Any) -> Any:
        kwargs = remove_args(["input_path", "log_output", "stdout_file", "stderr_file", "execution_timeout"], **kwargs)
        client = MeteredClient(
            nb_man,
            kernel_name=kernel_name,
            startup_timeout=kwargs.pop("start_timeout", 60),
            extra_arguments=["--log-level=ERROR"],  # a kernel's own notices are not the user's business
        )
        client.meter = OutputMeter(label)
        return client.execute()


def register() -> None:
    """Make the engine known to papermill as ``companion``."""
    papermill_engines.register("companion", MeteredEngine)
