"""Metrics in the text format of Prometheus; the dashboard and the alert rules use only metrics that exist."""

import json
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from onerow import Permanent, Pipeline, Queue, Worker
from onerow.engine.control.stats import Outcomes, bucket
from onerow.engine.events.events import Events, TaskLeaseLost
from onerow.telemetry.prometheus import StoreMetrics, WorkerMetrics
from tests.samples import a_task
from tests.servers import CACHE, Missing
from tests.web.kit import until

DEPLOY = Path(__file__).parents[2] / "deploy"


def letters() -> Pipeline:
    pipeline = Pipeline("letters")

    @pipeline.phase
    def write(payload: int) -> int:
        if payload == 0:
            raise Permanent("no")
        return payload

    return pipeline


def promtool(*words: str, text: str = "") -> None:
    """Run promtool; where it is missing, skip, or fail under CI."""
    from conftest import start

    def find() -> str:
        found = shutil.which("promtool") or shutil.which("promtool", path=CACHE / "prometheus" / "usr" / "bin")
        if found is None:
            raise Missing("it needs promtool: make servers, or on Debian apt install prometheus")
        return found

    done = subprocess.run([start(find), *words], input=text, capture_output=True, text=True, cwd=DEPLOY / "prometheus")
    assert done.returncode == 0, done.stdout + done.stderr


def test_metrics_of_store_and_worker(sqlite_url: str) -> None:
    queue = Queue(sqlite_url)
    queue.serve(letters())
    worker = Worker(queue)
    metrics, of_store = WorkerMetrics(queue.events, worker), StoreMetrics(queue)
    of_store.text()
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        worker.ready.wait(900)
        for number in range(3):
            queue.add("letters", number)
        until(lambda: sum(found.attempts for found in worker.totals.values()) == 3)
        until(lambda: b'error_class="",outcome="done",phase="write",pipeline="letters"} 2.0' in of_store.text())
        store, own = of_store.text().decode(), metrics.text().decode()  # a second scrape counts nothing twice
        started_again = StoreMetrics(queue).text().decode()
    finally:
        worker.stop()
        thread.join()
        metrics.close()
        queue.close()
    labels = 'phase="write",pipeline="letters"'
    assert re.search(r'onerow_tasks\{phase="write",pipeline="letters",status="completed"\} 2\.0', store)
    assert f"onerow_phase_workers{{{labels}}} 1.0" in store
    assert "onerow_store_up 1.0" in store
    assert 'onerow_build_info{store="sqlite"' in store
    assert re.search(
        r'onerow_attempts_total\{error_class="",outcome="done",phase="write",pipeline="letters"\} 2\.0', own
    )
    assert re.search(
        r'onerow_attempts_total\{error_class="permanent",outcome="failed",phase="write",pipeline="letters"\} 1\.0', own
    )
    for text in (store, own):
        assert f"onerow_attempt_duration_seconds_count{{{labels}}} 3.0" in text
        assert 'onerow_task_duration_seconds_count{pipeline="letters"} 2.0' in text
        assert 'onerow_attempts_total{error_class="",outcome="failed",phase="write",pipeline="letters"} 0.0' in text
    # Prometheus takes a smaller counter for a new start at 0: what it has seen before must not be in it.
    assert 'error_class="",outcome="done",phase="write",pipeline="letters"} 0.0' in started_again
    assert 'onerow_task_duration_seconds_count{pipeline="letters"} 0.0' in started_again
    assert f"onerow_wait_seconds_count{{{labels}}} 0.0" in started_again
    for text in (store, own):
        promtool("check", "metrics", text=text)


def test_the_histogram_of_a_worker_keeps_its_counts() -> None:
    events = Events()
    totals = {("p", "a"): Outcomes(done=3, rescued=1, run={bucket(5): 1, bucket(2_000): 1, bucket(10_000_000): 1})}
    metrics = WorkerMetrics(events, Totals(totals))
    events.send(TaskLeaseLost(a_task(pipeline="p", phase="a")))
    text = metrics.text().decode()
    assert 'onerow_attempt_duration_seconds_bucket{le="0.01",phase="a",pipeline="p"} 1.0' in text
    assert 'onerow_attempt_duration_seconds_bucket{le="3",phase="a",pipeline="p"} 2.0' in text
    assert 'onerow_attempt_duration_seconds_bucket{le="+Inf",phase="a",pipeline="p"} 3.0' in text
    assert 'onerow_leases_expired_total{phase="a",pipeline="p"} 1.0' in text
    assert 'onerow_lease_lost_total{phase="a",pipeline="p"} 1.0' in text
    metrics.close()


class Totals:
    """What WorkerMetrics reads of a worker."""

    def __init__(self, totals: dict[tuple[str, str], Outcomes]) -> None:
        self.totals = totals


def test_alert_rules_are_valid_and_fire() -> None:
    promtool("check", "rules", "onerow-alerts.yml")
    promtool("test", "rules", "onerow-alerts-test.yml")


@pytest.mark.parametrize("path", ["grafana/onerow.json", "prometheus/onerow-alerts.yml"])
def test_dashboard_and_rules_use_only_metrics_that_exist(sqlite_url: str, path: str) -> None:
    queue = Queue(sqlite_url)
    try:
        queue.publish(letters())
        known = StoreMetrics(queue).text().decode()
    finally:
        queue.close()
    events = Events()
    known += WorkerMetrics(events, Totals({("p", "a"): Outcomes(run={1: 1}, wait={1: 1})})).text().decode()
    names = set(re.findall(r"^# TYPE (onerow_\w+)", known, re.MULTILINE))
    names |= {f"{name}_bucket" for name in names}
    text = (DEPLOY / path).read_text(encoding="utf-8")
    if path.endswith("json"):
        assert json.loads(text)["panels"]
    used = set(re.findall(r"\bonerow_\w+", text))
    assert used
    assert used <= names
