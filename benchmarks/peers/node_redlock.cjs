// A worker (benchmarks/worker.py says what it speaks) for node-redlock: `node node_redlock.cjs NODE_MODULES`.
// It can be asked for latency, for throughput (benchmarks/slices.py says what they are), and for its share of a name.
"use strict";
const [, , modules] = process.argv;
const fs = require("fs");
const readline = require("readline");
const { Redis } = require(`${modules}/ioredis`);
const { default: Redlock, ExecutionError } = require(`${modules}/redlock`);

const clock = () => Number(process.hrtime.bigint()) / 1e9; // that of Python's time.monotonic()
const sleep = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));
const TTL = 10_000;
const SAMPLES = 5000;
const numbered = (prefix, number, names) => `${prefix}:${String(names ? number % names : number).padStart(3, "0")}`;
let clients = [];
let redlock;

// One try each time, and 0 to 20 ms between two: with tries of its own (retryCount) it keeps what it got of a lost
// vote until it gives up, so that several processes block each other.
async function acquire(name) {
  for (;;) {
    try {
      return await redlock.acquire([name], TTL);
    } catch (error) {
      if (!(error instanceof ExecutionError)) throw error;
      await sleep(0.02 * Math.random());
    }
  }
}

function thinned(values) {
  const ordered = values.sort((one, other) => one - other);
  if (ordered.length <= SAMPLES) return ordered;
  return Array.from({ length: SAMPLES }, (_, i) => ordered[Math.round((i * (ordered.length - 1)) / (SAMPLES - 1))]);
}

// Returns the seconds of CPU since `began`.
function used(began) {
  const { user, system } = process.cpuUsage(began);
  return (user + system) / 1e6;
}

const orders = {
  async open({ urls, options }) {
    clients = urls.map((url) => new Redis(url).on("error", () => {}));
    redlock = new Redlock(clients, { retryCount: 0, ...options }).on("error", () => {});
    return {};
  },
  async latency({ prefix, count, seconds, first = 0, names = null }) {
    const [acquires, cycles] = [[], []];
    const [cpu, ends] = [process.cpuUsage(), clock() + seconds];
    for (let i = 0; i < count; i++) {
      const began = clock();
      const lock = await acquire(numbered(prefix, first + i, names));
      const acquired = clock();
      await lock.release();
      const ended = clock();
      acquires.push(acquired - began);
      cycles.push(ended - began);
      if (ended > ends) break;
    }
    return { acquires, cycles, cpu: used(cpu) / cycles.length };
  },
  async throughput({ prefix, tasks, seconds, spread = 0, names = null }) {
    const acquires = [];
    const [cpu, began] = [process.cpuUsage(), clock()];
    async function task(number) {
      if (spread) await sleep((spread * number) / tasks);
      for (let i = 0, asked; (asked = clock()) < began + seconds; i++) {
        const lock = await acquire(numbered(`${prefix}:${number}`, i, names));
        acquires.push(clock() - asked);
        await lock.release();
      }
    }
    await Promise.all(Array.from({ length: tasks }, (_, number) => task(number)));
    const done = acquires.length;
    return { rate: done / (clock() - began), cpu: used(cpu) / done, done, acquires: thinned(acquires) };
  },
  async share({ name, at, seconds, section, pause, counter }) {
    let [had, done] = [0, 0];
    await sleep(at - clock());
    while (clock() < at + seconds) {
      const lock = await acquire(name);
      had += clock() < at + seconds;
      const number = parseInt(fs.readFileSync(counter, "utf8"), 10);
      await sleep(section);
      fs.writeFileSync(counter, String(number + 1).padStart(9, "0"), { flag: "r+" });
      done += 1;
      await lock.release();
      await sleep(2 * pause * Math.random());
    }
    return { had, done };
  },
  async close() {
    for (const client of clients) client.disconnect();
    return {};
  },
};

const lines = readline.createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const { do: what, ...order } = JSON.parse(line);
  let answer;
  try {
    answer = await orders[what](order);
  } catch (error) {
    answer = { error: String(error) };
  }
  console.log(JSON.stringify(answer));
});
lines.on("close", () => process.exit(0));
