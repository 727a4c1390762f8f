// A queue at work: node work.mjs <folder> <package> <host> <port> <prefix> <seconds>
// Adds jobs that wait, have priorities, are delayed, fail and are tried again, wait for children and are removed when they are done,
// and works on them; pauses and resumes. Ends when there is a key `enough`, or by itself, and prints {"completed", "failed", "removed"}.
import { createRequire } from 'node:module';

const [folder, name, host, port, prefix, seconds] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const { Queue, Worker, FlowProducer } = require(name);
const Redis = require('ioredis');

const options = { connection: { host, port: Number(port), maxRetriesPerRequest: null }, prefix };
const until = Date.now() + Number(seconds) * 1000;
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));
const redis = new Redis(options.connection);
const queue = new Queue('busy', options);
const flow = new FlowProducer(options);
const counts = { completed: 0, failed: 0, removed: 0 };

async function work(job) {
  if (job.data.slow) await pause(5);
  if (job.data.fails && job.attemptsMade < 2) throw new Error('again');
  return job.data;
}
const workers = ['busy', 'busy children'].map(each => new Worker(each, work, { ...options, concurrency: 8, maxStalledCount: 3 }));
for (const worker of workers) {
  worker.on('completed', () => counts.completed++);
  worker.on('failed', () => counts.failed++);
  worker.on('error', error => console.error(error));
}

for (let round = 0; Date.now() < until && !(await redis.exists('enough')); round++) {
  const removeOnComplete = round % 2 ? true : 50;
  const jobs = Array.from({ length: 20 }, (_, number) => ({
    name: 'each', data: { number, slow: number % 5 === 0, fails: number % 7 === 0 },
    opts: {
      removeOnComplete, removeOnFail: 20, attempts: 3, backoff: { type: 'fixed', delay: 3 },
      delay: number % 3 === 0 ? 10 + number : 0, priority: number % 4 === 0 ? 1 + number : 0,
    },
  }));
  const added = await queue.addBulk(jobs);
  await flow.add({
    name: 'parent', queueName: 'busy', data: {}, opts: { removeOnComplete },
    children: [1, 2].map(number => ({ name: 'child', queueName: 'busy children', data: { number }, opts: { removeOnComplete } })),
  });
  for (const job of added.slice(0, 2)) counts.removed += await queue.remove(job.id);
  if (round % 50 === 10) await queue.pause();
  if (round % 50 === 12) await queue.resume();
  while ((await queue.getJobCountByTypes('waiting', 'prioritized', 'delayed')) > 200) {
    await queue.resume();
    await pause(2);
  }
}
await queue.resume();
for (const worker of workers) await worker.close();
await queue.close();
await flow.close();
await redis.quit();
console.log(JSON.stringify(counts));
