// node-redlock over ioredis, which asks again after 200 to 300 ms by default. The protocol is that of worker.py.
import { createRequire } from "node:module";
import readline from "node:readline";

const require = createRequire(process.env.BENCH_MODULES + "/");
const Redis = require("ioredis");
const Redlock = require("redlock");

const now = () => Number(process.hrtime.bigint());
const pause = (millis) => new Promise((done) => setTimeout(done, millis));

function gate() {
  let open = () => {};
  let passed = new Promise((done) => (open = done));
  return {
    open: () => open(),
    async passes(end) {
      const late = await Promise.race([passed.then(() => false), pause(Math.max((end - now()) / 1e6, 0)).then(() => true)]);
      passed = new Promise((done) => (open = done));
      return !late;
    },
  };
}

async function work(redlock, order, worker, end, gates) {
  const grants = [];
  const turns = order.mode === "turns";
  const name = order.mode === "apart" ? `${order.name}-${worker}` : order.name;
  if (turns && worker && !(await gates[worker].passes(end))) return grants;
  for (let asked = now(); asked < end; asked = now()) {
    let lock;
    try {
      lock = await redlock.lock(name, 30_000);
    } catch (e) {
      if (e.name !== "LockError") throw e;
      continue;
    }
    const acquired = now();
    if (turns) gates[1 - worker].open();
    // A timer of Node's is exact to about a millisecond, so it looks at the clock meanwhile.
    for (const till = acquired + order.hold * 1e3; now() < till; ) await new Promise(setImmediate);
    const releasing = now();
    await lock.unlock();
    grants.push([asked, acquired, releasing, now()]);
    if (turns && !(await gates[worker].passes(end))) break;
  }
  return grants;
}

let client;
for await (const line of readline.createInterface({ input: process.stdin })) {
  if (!client) {
    client = new Redis(line.trim());
    await client.ping();
    console.log("ready");
    continue;
  }
  const [mode, name, workers, millis, hold] = line.trim().split(" ");
  const order = { mode, name, hold: Number(hold) };
  const end = now() + Number(millis) * 1e6;
  // So many tries that it gives up soon after the end.
  const redlock = new Redlock([client], { retryCount: Math.ceil(Number(millis) / 250) });
  redlock.on("clientError", () => {});
  const gates = [gate(), gate()];
  const all = Array.from({ length: Number(workers) }, (_, worker) => work(redlock, order, worker, end, gates));
  console.log(JSON.stringify(await Promise.all(all)));
}
process.exit(0);
