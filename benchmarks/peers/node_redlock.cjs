// A worker (benchmarks/worker.py says what it speaks) for node-redlock: `node node_redlock.cjs NODE_MODULES`.
// It can only be asked for its share of a name.
"use strict";
const [, , modules] = process.argv;
const fs = require("fs");
const readline = require("readline");
const { Redis } = require(`${modules}/ioredis`);
const { default: Redlock, ExecutionError } = require(`${modules}/redlock`);

const clock = () => Number(process.hrtime.bigint()) / 1e9; // that of Python's time.monotonic()
const sleep = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));
const TTL = 10_000;
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

const orders = {
  async open({ urls, options }) {
    clients = urls.map((url) => new Redis(url));
    redlock = new Redlock(clients, { retryCount: 0, ...options });
    return {};
  },
  async share({ name, at, seconds, section, pause, counter }) {
    let had = 0;
    await sleep(at - clock());
    while (clock() < at + seconds) {
      const lock = await acquire(name);
      const number = parseInt(fs.readFileSync(counter, "utf8"), 10);
      await sleep(section);
      fs.writeFileSync(counter, String(number + 1).padStart(9, "0"), { flag: "r+" });
      had += 1;
      await lock.release();
      await sleep(2 * pause * Math.random());
    }
    return { had };
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
