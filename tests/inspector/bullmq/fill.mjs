// Fills queues in every state, with the library itself: node fill.mjs <package> <host> <port> <prefix>
// Prints a line for each job whose due time the library's caller knows: {"queue", "id", "due"} (ms), to hold the inspector to.
import { createRequire } from 'node:module';

const [folder, name, host, port, prefix] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const { Queue, Worker, FlowProducer, UnrecoverableError } = require(name);
const Redis = require('ioredis');

const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const redis = new Redis(connection);
const open = [];
const keep = thing => (open.push(thing), thing);
const queueOf = (queue, options = {}) => keep(new Queue(queue, { connection, prefix, ...options }));
const workerOf = (queue, options = {}) =>
  keep(new Worker(queue, null, { connection, prefix, autorun: false, lockDuration: 600_000, ...options }));
const told = (queue, job, due) => console.log(JSON.stringify({ queue: queue.name, id: job.id, due }));
const until = async condition => {
  while (!(await condition())) await new Promise(resolve => setTimeout(resolve, 5));
};

const HOUR = 3_600_000;
const now = Date.now();

async function waiting() {
  const queue = queueOf('waiting');
  for (const data of [{ to: 'ada' }, 'text', 17.25, null, true, [1, [2]], {}, { nested: { deep: ['ü', '\u0000', '👩\u200d🔬 \u200b\u0085'] } }])
    await queue.add('kinds', data);
  await queue.add('none');
  await queue.add('large', { blob: 'x'.repeat(100_000) });
  await queue.add('last in', { first: 'out' }, { lifo: true });
  for (const jobId of ['user-42', 'with space', 'größe-🧥', 'a:b:c', '{tag}', '*'])
    await queue.add('named', { jobId }, { jobId });
  await queue.add('options', {}, { attempts: 7, backoff: { type: 'exponential', delay: 500 }, keepLogs: 3, removeOnFail: 9 });
  await queue.remove((await queue.add('removed', {}, { jobId: 'removed' })).id);
  const logged = await queue.add('logged', {});
  await logged.log('one');
  await logged.updateProgress({ percent: 40 });
}

async function prioritized() {
  const queue = queueOf('prioritized');
  for (const priority of [1, 2, 3, 3, 2_097_151]) await queue.add('p', { priority }, { priority });
  const changed = await queue.add('p', { changed: true }, { priority: 9 });
  await changed.changePriority({ priority: 4 });
}

async function delayed() {
  const queue = queueOf('delayed');
  // More than the 4,096 that one millisecond has numbers for, all due in the same one.
  const crowd = Array.from({ length: 4_100 }, (_, number) => ({ name: 'crowd', data: { number }, opts: { timestamp: now, delay: HOUR } }));
  for (const job of await queue.addBulk(crowd)) told(queue, job, now + HOUR);
  // 2^53 / 4096 is 2039-09-07: from there on a score has no room for its sequence, but still for its time.
  for (const due of [now + HOUR + 1, now + 5 * HOUR, 2_199_023_255_550, 2_199_023_255_551, 2_199_023_255_552, 4_102_444_800_001])
    told(queue, await queue.add('far', { due }, { timestamp: now, delay: due - now }), due);
  told(queue, await queue.add('both', {}, { timestamp: now, delay: 2 * HOUR, priority: 5 }), now + 2 * HOUR);
  const changed = await queue.add('changed', {}, { delay: HOUR });
  await changed.changeDelay(3 * HOUR); // its due is what the event says
  const promoted = await queue.add('promoted', {}, { delay: HOUR });
  await promoted.promote();
}

async function overdue() { // due, and nobody there to move them
  const queue = queueOf('overdue');
  for (const ago of [60_000, 120_000, 10 * HOUR])
    told(queue, await queue.add('late', { ago }, { timestamp: now - ago - HOUR, delay: HOUR }), now - ago);
}

async function retried() {
  const queue = queueOf('retried');
  const worker = workerOf('retried');
  await queue.add('backoff', {}, { attempts: 5, backoff: { type: 'fixed', delay: 2 * HOUR } });
  await (await worker.getNextJob('token')).moveToFailed(new Error('once'), 'token', false);
  await queue.add('postponed', {});
  const postponed = await worker.getNextJob('token');
  await postponed.moveToDelayed(now + 7 * HOUR, 'token');
  await queue.add('again', {}, { attempts: 5 });
  await (await worker.getNextJob('token')).moveToFailed(new Error('at once'), 'token', false); // waits again
}

async function active() {
  const queue = queueOf('active');
  for (let number = 0; number < 6; number++) await queue.add('held', { number });
  const worker = workerOf('active');
  for (let number = 0; number < 2; number++) await worker.getNextJob(`token-${number}`);
  const dying = workerOf('active', { lockDuration: 20 });
  for (let number = 0; number < 2; number++) {
    const job = await dying.getNextJob('dead');
    await until(async () => !(await redis.exists(`${prefix}:active:${job.id}:lock`)));
  }
}

async function stalled() { // lost by one worker, found by another
  const queue = queueOf('stalled');
  await queue.add('lost', {});
  const job = await workerOf('stalled', { lockDuration: 20 }).getNextJob('dead');
  await until(async () => !(await redis.exists(`${prefix}:stalled:${job.id}:lock`)));
  const finder = workerOf('stalled');
  await finder.moveStalledJobsToWait(); // the first look marks, the next one moves
  await redis.del(`${prefix}:stalled:stalled-check`);
  await finder.moveStalledJobsToWait();
  await redis.del(`${prefix}:stalled:stalled-check`); // as in 30 s: nothing expires while a test looks
}

async function finished() {
  const queue = queueOf('finished');
  const worker = workerOf('finished', { metrics: { maxDataPoints: 60 } });
  for (const value of [{ ok: true }, 'text', 3.5, null, undefined, false, [1, 2], { blob: 'y'.repeat(50_000) }, 'ünïcode']) {
    await queue.add('completed', { value });
    await (await worker.getNextJob('token')).moveToCompleted(value, 'token', false);
  }
  await queue.add('forgotten', {}, { jobId: 'forgotten', removeOnComplete: true });
  await (await worker.getNextJob('token')).moveToCompleted(1, 'token', false);
  for (const error of [new Error('boom'), new Error('größer 🧥\nzwei Zeilen'), new UnrecoverableError('never again'), new Error('')]) {
    await queue.add('failed', {}, { attempts: error instanceof UnrecoverableError ? 9 : 1 });
    await (await worker.getNextJob('token')).moveToFailed(error, 'token', false);
  }
  await queue.add('retried', {}, { attempts: 1 });
  const again = await worker.getNextJob('token');
  await again.moveToFailed(new Error('first'), 'token', false);
  await again.retry();
}

async function paused() {
  const queue = queueOf('paused');
  for (let number = 0; number < 3; number++) await queue.add('before', { number });
  await queue.pause();
  for (let number = 0; number < 3; number++) await queue.add('after', { number });
  await queue.add('important', {}, { priority: 3 });
  told(queue, await queue.add('later', {}, { timestamp: now, delay: HOUR }), now + HOUR);
  const resumed = queueOf('resumed');
  await resumed.add('before', {});
  await resumed.pause();
  await resumed.add('between', {});
  await resumed.resume();
}

async function flows() {
  const flow = keep(new FlowProducer({ connection, prefix }));
  const child = (name, opts = {}, children) => ({ name, queueName: 'children', data: { name }, opts, children });
  await flow.add({
    name: 'parent', queueName: 'parents', data: { all: 'of them' },
    children: [child('one'), child('two', { failParentOnFailure: true }), child('grand', {}, [child('leaf', { priority: 2 })])],
  });
  await flow.add({ name: 'ready', queueName: 'parents', data: {}, children: [child('quick', { priority: 1 })] });
  await flow.add({ name: 'lenient', queueName: 'parents', data: {}, children: [child('late', { delay: HOUR, ignoreDependencyOnFailure: true })] });
  const worker = workerOf('children');
  await (await worker.getNextJob('token')).moveToCompleted('done', 'token', false);
  await (await worker.getNextJob('token')).moveToFailed(new Error('child'), 'token', false);
  await (await worker.getNextJob('token')).moveToCompleted('quick', 'token', false);
  const parents = queueOf('parents');
  queueOf('children');
  await parents.add('makes children', {});
  const parentWorker = workerOf('parents');
  for (let parent; (parent = await parentWorker.getNextJob('parent')); ) {
    if (parent.name !== 'makes children') continue;
    await queueOf('children').add('added', {}, { parent: { id: parent.id, queue: parent.queueQualifiedName } });
    await parent.moveToWaitingChildren('parent');
  }
}

async function schedulers() {
  const queue = queueOf('schedulers');
  await queue.upsertJobScheduler('each hour', { every: HOUR }, { name: 'tick', data: { by: 'interval' } });
  await queue.upsertJobScheduler('nightly', { pattern: '0 30 3 * * *', tz: 'Europe/Berlin' }, { name: 'night', data: {}, opts: { priority: 3 } });
  await queue.upsertJobScheduler('few', { every: HOUR, limit: 3 });
  if (name === 'bullmq5') await queue.add('repeatable', { old: 'style' }, { repeat: { pattern: '0 0 5 * * *' } });
  const worker = workerOf('schedulers');
  await worker.getNextJob('token');
}

async function deduplicated() {
  const queue = queueOf('deduplicated');
  for (let number = 0; number < 3; number++) {
    await queue.add('simple', { number }, { deduplication: { id: 'simple' } });
    await queue.add('throttled', { number }, { deduplication: { id: 'throttled', ttl: HOUR } });
    await queue.add('debounced', { number }, { delay: HOUR, deduplication: { id: 'debounced', ttl: HOUR, extend: true, replace: true } });
  }
  const last = { deduplication: { id: 'last', keepLastIfActive: true } };
  await queue.add('last', { number: 1 }, { ...last, lifo: true });
  while ((await workerOf('deduplicated').getNextJob('token')).name !== 'last');
  await queue.add('last', { number: 2 }, last);
}

async function limited() {
  const queue = queueOf('limited');
  for (let number = 0; number < 3; number++) await queue.add('limited', { number });
  const worker = workerOf('limited', { limiter: { max: 1, duration: HOUR } });
  await worker.getNextJob('token');
  await worker.rateLimit(HOUR);
  const capped = queueOf('capped');
  await capped.setGlobalConcurrency(1);
  await capped.setGlobalRateLimit(5, HOUR);
  for (let number = 0; number < 3; number++) await capped.add('capped', { number });
  const capping = workerOf('capped');
  await capping.getNextJob('token');
  await capping.getNextJob('token');
}

async function named() { // names that look like something else
  for (const odd of ['meta', 'with space', 'größe-🧥', '{tag}', 'a*b', 'a?[b]', 'delayed.v2']) {
    const queue = queueOf(odd);
    await queue.add('odd', { odd });
    told(queue, await queue.add('odd', { odd }, { timestamp: now, delay: HOUR }), now + HOUR);
  }
}

async function legacy() { // what releases before the marker had a key of its own left in the list
  const queue = queueOf('legacy');
  await queue.add('real', {});
  await redis.rpush(`${prefix}:legacy:wait`, `0:${now + HOUR}`);
  await redis.lpush(`${prefix}:legacy:wait`, '0');
}

for (const fill of [waiting, prioritized, delayed, overdue, retried, active, stalled, finished, paused, flows, schedulers, deduplicated, limited, named, legacy])
  await fill();
for (const thing of open) await thing.close();
await redis.quit();
