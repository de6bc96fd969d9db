// A worker in TypeScript: pulls tasks over HTTP, sends heartbeats, settles them. Node 18+, no packages.
//   ONEROW_URL=http://127.0.0.1:8003 ONEROW_TOKEN=… npx tsx worker.ts clips script
type Lease = { task_id: string; token: number; attempt: number; payload: any; results: Record<string, any>; lease_for: string };
type Handler = (lease: Lease, signal: AbortSignal) => Promise<unknown>;

const base = (process.env.ONEROW_URL ?? "http://127.0.0.1:8003").replace(/\/$/, "");
const [pipeline, phase] = process.argv.slice(2);
const headers: Record<string, string> = { "content-type": "application/json" };
if (process.env.ONEROW_TOKEN) headers.authorization = `Bearer ${process.env.ONEROW_TOKEN}`;
let stopping = false;
process.on("SIGTERM", () => { stopping = true; });

async function post(path: string, body: object): Promise<any> {
  for (let wait = 500; ; wait = Math.min(wait * 2, 30_000)) {
    try {
      const answer = await fetch(`${base}/api/v1${path}`, { method: "POST", headers, body: JSON.stringify(body) });
      if (answer.ok) return await answer.json();
      const problem: any = await answer.json();
      if (answer.status < 500) throw Object.assign(new Error(`${problem.detail}; ${problem.fix ?? ""}`), { status: answer.status });
    } catch (error: any) {
      if (error.status) throw error; // refused: sending it again would not help
      console.error("onerow unavailable, retrying:", error.message);
    }
    await new Promise((done) => setTimeout(done, wait)); // the lease may end in this time; then the next request gets 409
  }
}

const seconds = (text: string) => [...text.matchAll(/([\d.]+)(ms|s|m|h|d)/g)]
  .reduce((sum, [, number, unit]) => sum + Number(number) * { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 }[unit]!, 0);

async function run(lease: Lease, handler: Handler): Promise<void> {
  const { task_id: id, token } = lease;
  const stop = new AbortController();
  const heartbeat = setInterval(async () => {
    try {
      const held = await post(`/leases/${id}/heartbeat`, { token, lease_for: lease.lease_for });
      if (held.cancel_requested) stop.abort(new Error("cancelled"));
    } catch (error) {
      stop.abort(error); // another worker has the task now
    }
  }, (seconds(lease.lease_for) * 1000) / 3);
  try {
    const result = await handler(lease, stop.signal);
    await post(`/leases/${id}/complete`, { token, result });
  } catch (error: any) {
    if (error.status === 409) return console.error(`task ${id}: the lease is lost; the result is discarded`);
    await post(`/leases/${id}/fail`, { token, error: String(error?.message ?? error) });
  } finally {
    clearInterval(heartbeat);
  }
}

const handler: Handler = async (lease) => ({ shouted: String(lease.payload?.topic ?? "").toUpperCase() });

while (!stopping) {
  const { leases } = await post("/claims", { pipeline, phase, worker: `node-${process.pid}`, wait: "20s" });
  await Promise.all(leases.map((lease: Lease) => run(lease, handler)));
}
