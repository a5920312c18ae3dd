"""Checks files of examples/scheduling by the schemas of those who read them; prints what is wrong.

It runs in an environment of its own: python tests/support/schedulers.py FILE…
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import kubernetes_validate
import yaml
from botocore.validate import ParamValidator
from databricks.sdk.service.compute import ClusterSpec
from databricks.sdk.service.jobs import JobSettings

KUBERNETES = "1.36"
EMR = {"cluster": "RunJobFlow", "step": "AddJobFlowSteps"}
DATABRICKS = {"cluster": ClusterSpec, "job": JobSettings}


def wrong(path: Path) -> Iterator[str]:
    """Say what a schema does not allow in a file."""
    text = path.read_text("utf-8")
    if path.suffix == ".yaml":
        for document in yaml.safe_load_all(text):
            yield from _by_kubernetes(document)
    elif path.parent.name == "emr":
        model = botocore.session.get_session().get_service_model("emr")
        shape = model.operation_model(EMR[path.stem]).input_shape
        report = ParamValidator().validate(json.loads(text), shape)
        if report.has_errors():
            yield report.generate_report()
    else:
        given = json.loads(text)
        # What the type does not know, or cannot hold, does not come back.
        known = DATABRICKS[path.stem].from_dict(given).as_dict()
        if known != given:
            yield f"read as {known}"


def _by_kubernetes(document: dict[str, Any]) -> Iterator[str]:
    if (
        document["kind"] == "SparkApplication"
    ):  # a resource of the operator; pods are Kubernetes' own
        template = document["spec"]["driverSpec"]["podTemplateSpec"]
        named = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "driver"}}
        document = {**named, "template": template}
    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield error.message


if __name__ == "__main__":
    found = [f"{file}: {text}" for file in sys.argv[1:] for text in wrong(Path(file))]
    sys.exit("\n".join(found) or 0)
