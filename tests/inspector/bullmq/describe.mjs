// What the library says of its queues: node describe.mjs <folder> <package> <host> <port> <prefix> <queue>…
// A line for each job that it lists, or that an event of the queue names: {"queue", "id", "state", "job", "due"}, `job` null if it is
// gone, `due` (ms) what its last `delayed` event said; and a line for each queue: {"queue", "counts", "paused", "version"}.
import { createRequire } from 'node:module';

const [folder, name, host, port, prefix, ...queues] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const { Queue } = require(name);
const Redis = require('ioredis');

const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const redis = new Redis(connection);
const print = line => process.stdout.write(`${JSON.stringify(line)}\n`);

/** Each id that the queue's events name, with the due time of its last `delayed` event, in ms. */
async function events(queue) {
  const found = new Map();
  for (const [, fields] of await redis.xrange(`${prefix}:${queue}:events`, '-', '+')) {
    const event = Object.fromEntries(fields.flatMap((field, at) => (at % 2 ? [] : [[field, fields[at + 1]]])));
    if (event.jobId === undefined) continue;
    if (event.event === 'delayed') found.set(event.jobId, Number(event.delay));
    else if (!found.has(event.jobId)) found.set(event.jobId, null);
  }
  return found;
}

async function describe(queue, id, due) {
  const job = await queue.getJob(id);
  const state = job ? await job.getState() : await queue.getJobState(id);
  const fields = job && {
    name: job.name, data: job.data, opts: job.opts, returnvalue: job.returnvalue, failedReason: job.failedReason,
    stacktrace: job.stacktrace, progress: job.progress, attemptsMade: job.attemptsMade, timestamp: job.timestamp,
    delay: job.delay, priority: job.priority, processedOn: job.processedOn, finishedOn: job.finishedOn, parentKey: job.parentKey,
  };
  print({ queue: queue.name, id, state, job: fields ?? null, due: state === 'delayed' ? due : null });
}

for (const each of queues) {
  const queue = new Queue(each, { connection, prefix, skipMetasUpdate: true });
  const paused = await queue.isPaused();
  const known = await events(each);
  for (const job of await queue.getDelayed()) if (!known.has(job.id)) known.set(job.id, job.timestamp + job.delay);
  for (const job of await queue.getJobs()) if (!known.has(job.id)) known.set(job.id, null);
  for (const [id, due] of known) await describe(queue, id, due);
  print({ queue: each, counts: await queue.getJobCounts(), paused, version: await queue.getVersion() });
  await queue.close();
}
await redis.quit();
