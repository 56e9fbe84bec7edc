"""What the server of processes imports before it forks; nothing here starts a thread."""

import prefect.cli.deploy
import prefect.flow_engine  # noqa: F401
import pressing_ready  # noqa: F401

import statpress.flows.deployed  # noqa: F401
