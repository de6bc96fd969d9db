"""The option `pipeline` of an inbox: a pipeline or its name."""

from onerow.core.errors import BadInput
from onerow.pipelines.pipeline import Pipeline


def pipeline_name(pipeline: object) -> str | None:
    """Return the name of the pipeline of messages that name none; raise BadInput if it is no pipeline and no name."""
    if isinstance(pipeline, Pipeline):
        return pipeline.name
    if pipeline is None or (isinstance(pipeline, str) and pipeline):
        return pipeline
    raise BadInput(f"pipeline must be a Pipeline or its name, not {pipeline!r}", field="pipeline")
