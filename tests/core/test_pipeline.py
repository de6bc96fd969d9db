"""Pipeline definitions: mistakes are errors when the pipeline is built, and the messages name the fix."""

import dataclasses
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypedDict

import msgspec
import pytest

from onerow.core.errors import BadInput, PipelineError, UnknownName
from onerow.core.plan import DEFAULT_LEASE, DEFAULT_TIMEOUT, PhasePlan, Plan
from onerow.core.retry import Retry
from onerow.pipelines.pipeline import Pipeline
from onerow.pipelines.signature import is_typed, payload_schema


class Job(msgspec.Struct):
    topic: str
    length: int = 60


@dataclasses.dataclass
class Script:
    text: str


class Loose(TypedDict):
    topic: str


def render(job: Any) -> Any:
    return job


def videos() -> Pipeline:
    pipeline = Pipeline("videos", title="{topic}")
    pipeline.wait_until("schedule", field="scheduled_time")

    @pipeline.phase(concurrency=1, retry=Retry(5), timeout="2m", lease="10s")
    def script(job: Any) -> str:
        return f"about {job['topic']}"

    pipeline.wait_for("image", signal="images.ready", timeout="3d")

    @pipeline.phase(per_key=2, renamed_from="film")
    async def video(job: Any, script: str, image: Any, *, ctx: Any) -> str:
        return "v.mp4"

    return pipeline


def test_a_pipeline_is_data_for_the_store_and_functions_for_the_worker() -> None:
    pipeline = videos()
    plan = pipeline.plan
    assert [phase.name for phase in plan.phases] == ["schedule", "script", "image", "video"]
    assert [phase.kind for phase in plan.phases] == ["wait_until", "run", "wait_for", "run"]
    assert [phase.has_code for phase in plan.phases] == [False, True, False, True]
    assert (plan.phases[1].concurrency, plan.phases[1].retry.max_retries) == (1, 5)
    assert (plan.phases[1].timeout, plan.phases[1].lease) == (timedelta(minutes=2), timedelta(seconds=10))
    assert (plan.phases[3].per_key, plan.phases[3].timeout, plan.phases[3].lease) == (2, DEFAULT_TIMEOUT, DEFAULT_LEASE)
    assert plan.phases[2].timeout == timedelta(days=3)
    assert set(pipeline.handlers) == {"script", "video"}
    assert [p.source for p in pipeline.handlers["video"].parameters] == ["payload", "result", "result", "context"]
    assert [p.keyword for p in pipeline.handlers["video"].parameters] == [False, False, False, True]
    assert (pipeline.handlers["video"].is_async, pipeline.handlers["script"].is_async) == (True, False)
    assert repr(pipeline) == "Pipeline('videos': schedule → script → image → video)"


def test_a_plan_can_be_encoded_and_decoded() -> None:
    plan = videos().plan
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_a_phase_is_a_plain_function_that_can_be_called() -> None:
    pipeline = Pipeline("p")
    assert pipeline.phase(render) is render
    assert pipeline.phase(name="again")(render) is render
    assert render(1) == 1


def test_a_plan_knows_phases_by_their_former_names() -> None:
    plan = videos().plan
    assert plan.knows("film")
    assert plan.phase("film").name == "video"
    assert plan.position("film") == 3
    assert plan.after("image") is plan.phase("video")
    assert plan.after("film") is None
    assert plan.names_from("image") == {"image", "video", "film"}
    assert plan.first.name == "schedule"
    assert not plan.knows("vidoe")
    with pytest.raises(UnknownName, match=r"has no phase 'vidoe'\ndid you mean 'video'\?"):
        plan.phase("vidoe")


def test_a_present_name_wins_over_a_former_one() -> None:
    plan = Plan(name="p", phases=(PhasePlan(name="a"), PhasePlan(name="b", renamed_from=("a",))))
    assert plan.phase("a").name == "a"


def test_the_payload_s_type_comes_from_the_first_handler_that_declares_one() -> None:
    pipeline = Pipeline("p")

    @pipeline.phase
    def first(job: Job) -> Script:
        return Script(job.topic)

    @pipeline.phase
    def second(job: Job, first: Script) -> None: ...

    assert pipeline.payload_type is Job
    assert pipeline.plan.required == ("topic",)
    assert pipeline.handlers["second"].parameters[1].type is Script


def test_typed_payloads_are_recognised_and_have_a_schema() -> None:
    assert [is_typed(kind) for kind in (Job, Script, Loose, dict, str, Any, list[int])] == [True] * 3 + [False] * 4
    assert payload_schema(None) == (None, ())
    assert payload_schema(Any) == (None, ())
    for kind in (Job, Script, Loose):
        schema, required = payload_schema(kind)
        assert schema is not None
        assert len(required) == 1


# ── mistakes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def generator(job: Any) -> Any:
    yield job


async def async_generator(job: Any) -> Any:
    yield job


def after_script(job: Any, scirpt: Any) -> None: ...


def after_topic(job: Any, everything: Any) -> None: ...


def with_context(job: Any, context: Any) -> None: ...


def with_resource(pipeline: Pipeline) -> Pipeline:
    pipeline.resource(name="scripts")(lambda: "")
    return pipeline


class Studio:
    def render(self, job: Any) -> None: ...


def payload_named_script(script: Any) -> None: ...


def payload_named_later(later: Any) -> None: ...


def takes_anything(job: Any, *rest: Any) -> None: ...


def takes_any_name(job: Any, **rest: Any) -> None: ...


def unresolvable(job: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821


def one(pipeline: Pipeline) -> Pipeline:
    pipeline.phase(name="script")(render)
    return pipeline


def add_later(pipeline: Pipeline) -> Plan:
    pipeline.phase(payload_named_later)
    pipeline.phase(name="later")(render)
    return pipeline.plan


def add_nowhere(pipeline: Pipeline) -> Plan:
    pipeline.phase(render)
    pipeline.wait_for("w", signal="s", timeout="1d", on_timeout="nowhere")
    return pipeline.plan


def add_bad_type(pipeline: Pipeline) -> Plan:
    pipeline.payload_type = complex
    pipeline.phase(render)
    return pipeline.plan


MISTAKES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no phases": (lambda p: p.plan, r"has no phases\nadd one with @p\.phase"),
    "the same name twice": (
        lambda p: one(p).phase(name="script")(render),
        "already has a phase 'script'\ngive the phase another name",
    ),
    "a resource of the same name": (
        lambda p: with_resource(p).resource(name="scripts")(list),
        "there is already a resource 'scripts'\ngive one another name",
    ),
    "a former name that is taken": (
        lambda p: one(p).phase(renamed_from="script")(render),
        "already has a phase 'script'",
    ),
    "a wait with a name that is taken": (
        lambda p: one(p).wait_until("script", field="at"),
        "already has a phase 'script'",
    ),
    "a name with a space": (lambda p: p.phase(name="a b")(render), "'a b' can't name a phase"),
    "a name that is no text": (lambda p: p.phase(name=5)(render), "5 can't name a phase"),
    "too long a name": (lambda p: p.phase(name="x" * 101)(render), "at most 100"),
    "a lambda without a name": (lambda p: p.phase(lambda job: job), "'<lambda>' can't name a phase"),
    "a wait without a field": (lambda p: p.wait_until("w", field=""), "can't name a field"),
    "a wait without a signal": (lambda p: p.wait_for("w", signal=""), "can't name a signal"),
    "no function": (
        lambda p: p.phase("script"),
        r"a phase of pipeline 'p' must be a function, not 'script'\nwrite @p\.phase\(name='script'\)",
    ),
    "a method": (
        lambda p: p.phase(Studio.render),
        "phase 'render' of pipeline 'p': a phase is a function, not a method\ndefine it outside of the class; objects that "
        "it needs are resources",
    ),
    "a generator": (lambda p: p.phase(generator), "is a generator"),
    "an async generator": (lambda p: p.phase(async_generator), "is a generator"),
    "a parameter that names no phase": (
        lambda p: one(p).phase(after_script),
        r"parameter 'scirpt' names no earlier phase \(earlier: script\) and no resource\ndid you mean 'script'\?",
    ),
    "a context of another name": (
        lambda p: p.phase(with_context),
        r"parameter 'context' names no earlier phase .*\ndid you mean 'ctx'\?",
    ),
    "a misspelt resource": (
        lambda p: with_resource(p).phase(after_script),
        r"parameter 'scirpt' names no earlier phase .*\ndid you mean 'scripts'\?",
    ),
    "a parameter and no earlier phase": (
        lambda p: p.phase(after_topic),
        r"earlier: none yet\) and no resource\nbesides the payload, parameters are earlier phases, resources and 'ctx'",
    ),
    "a payload named after a phase": (
        lambda p: one(p).phase(payload_named_script),
        "the first parameter is the payload and can't be named after the phase 'script'",
    ),
    "a payload named after a later phase": (add_later, "can't be named after the phase 'later'"),
    "*args": (lambda p: p.phase(takes_anything), r"\*rest can't be filled"),
    "**kwargs": (lambda p: p.phase(takes_any_name), r"\*rest can't be filled"),
    "an annotation that leads nowhere": (lambda p: p.phase(unresolvable), "'Nowhere' of 'job' can't be resolved"),
    "a lambda in a process of its own": (
        lambda p: p.phase(name="x", isolate="process")(lambda job: job),
        "must be importable by name",
    ),
    "a memory limit for a thread": (lambda p: p.phase(memory_limit="1GB"), "memory_limit needs isolate='process'"),
    "a memory limit that is no size": (
        lambda p: p.phase(isolate="process", memory_limit="much")(render),
        "memory_limit: can't read the size 'much'",
    ),
    "isolation of another kind": (lambda p: p.phase(isolate="thread"), "isolate must be 'process' or None"),
    "no concurrency at all": (lambda p: p.phase(concurrency=0)(render), "concurrency must be a whole number"),
    "half a concurrency": (lambda p: p.phase(concurrency=0.5)(render), "concurrency must be a whole number"),
    "a concurrency of True": (lambda p: p.phase(concurrency=True)(render), "concurrency must be a whole number"),
    "a negative limit per key": (lambda p: p.phase(per_key=-1)(render), "per_key must be a whole number"),
    "a timeout that is none": (lambda p: p.phase(timeout="soon")(render), "timeout: can't read the duration 'soon'"),
    "a timeout of nothing": (lambda p: p.phase(timeout=0)(render), "timeout must be longer than nothing"),
    "a lease that is none": (lambda p: p.phase(lease="x")(render), "lease: can't read the duration 'x'"),
    "too short a lease": (lambda p: p.phase(lease="10ms")(render), "lease must be between 1 second and 7 days"),
    "a wait's timeout that is none": (lambda p: p.wait_for("w", signal="s", timeout="x"), "can't read the duration"),
    "a retry that is none": (lambda p: p.phase(retry="often")(render), "retry must be a Retry"),
    "on_timeout to nowhere": (add_nowhere, "on_timeout names no phase: 'nowhere'"),
    "a payload that is not JSON": (add_bad_type, "can't be stored as JSON"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_an_error_when_the_pipeline_is_built(mistake: str) -> None:
    build, message = MISTAKES[mistake]
    with pytest.raises(PipelineError, match=message):
        build(Pipeline("p"))


@pytest.mark.parametrize("title", ["{topic", "topic}", 5, None])
def test_a_title_that_is_no_template_is_rejected(title: Any) -> None:
    with pytest.raises(
        PipelineError, match=r"is no template\nwrite it like '{topic}'; write a brace as '{{'"
    ) as refused:
        Pipeline("p", title=title)
    assert refused.value.field == "title"
    assert repr(title) in str(refused.value)


def test_a_cell_of_a_notebook_that_runs_again_replaces_its_phase_and_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    pipeline = with_resource(videos())

    @pipeline.phase(timeout="9m")
    def script(job: Any, scripts: Any) -> str:
        return "another"

    pipeline.wait_for("image", signal="other")
    pipeline.resource(name="scripts")(list)
    assert [each.name for each in pipeline.plan.phases] == ["schedule", "script", "image", "video"]
    assert (pipeline.plan.phase("script").timeout, pipeline.handlers["script"].function) == (
        timedelta(minutes=9),
        script,
    )
    assert (pipeline.plan.phase("image").signal, pipeline.resources["scripts"].function) == ("other", list)
    for wrong in (pipeline.phase(name="film"), pipeline.phase(name="script", renamed_from="film")):
        with pytest.raises(PipelineError, match="already has a phase 'film'"):  # the former name of another phase
            wrong(render)
    pipeline.wait_for("script", signal="written")
    assert "script" not in pipeline.handlers
    for tz in ("UTC", "Asia/Seoul"):
        pipeline.cron("0 9 * * *", name="daily", tz=tz, payload={"topic": "tides"})
    assert [cron.tz for cron in pipeline.plan.crons] == ["Asia/Seoul"]


def test_a_closure_can_t_run_in_an_isolated_process() -> None:
    def closure(job: Any) -> Any:
        return job

    with pytest.raises(PipelineError, match="lambda or closure\ndefine it at the top of a module"):
        Pipeline("p").phase(isolate="process")(closure)
    pipeline = Pipeline("p")
    pipeline.phase(isolate="process")(render)
    assert pipeline.plan.first.isolated


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", ".a", "a/b", "a\n", None, 5, "x" * 101, "a;b"])
def test_an_invalid_pipeline_name_is_rejected(name: Any) -> None:
    with pytest.raises(PipelineError, match="can't name a pipeline"):
        Pipeline(name)


@pytest.mark.parametrize("name", ["videos", "비디오", "a-b.c_d", "1st", "_x", "x" * 100])
def test_names_may_be_in_any_script(name: str) -> None:
    assert Pipeline(name).name == name


def test_a_number_of_retries_is_accepted_as_a_retry_policy() -> None:
    pipeline = Pipeline("p")
    pipeline.phase(retry=0)(render)
    assert pipeline.plan.first.retry == Retry(0)
    with pytest.raises(BadInput, match="max_retries"):
        pipeline.phase(retry=-1, name="x")(render)


def test_a_rejected_phase_leaves_the_pipeline_unchanged() -> None:
    pipeline = one(Pipeline("p"))
    before = pipeline.plan
    with pytest.raises(PipelineError):
        pipeline.phase(name="script")(render)
    assert pipeline.plan == before
    assert set(pipeline.handlers) == {"script"}
