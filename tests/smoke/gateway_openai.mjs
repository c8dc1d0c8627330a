// SPDX-License-Identifier: BSD-3-Clause
// The openai package as its users use it, against the URL of the first argument. One line for each failed check, then
// "N passed, N failed"; the exit status says the same.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [url, folder] = process.argv.slice(2);
const require = createRequire(pathToFileURL(folder + '/'));
const OpenAI = require('openai').default;
const client = new OpenAI({ baseURL: url, apiKey: 'a key', maxRetries: 0, timeout: 20000 });
let passed = 0, failed = 0;

function check(name, good, detail) {
  good ? passed++ : failed++;
  if (!good) console.log('FAIL', name, detail);
}

async function refused(name, status, kind, call) {
  try {
    await call();
    check(name, false, 'it was answered');
  } catch (e) {
    check(name, e.status === status && e instanceof kind && typeof e.message === 'string', [e.status, e.constructor.name, e.message]);
    return e;
  }
}

const messages = [{ role: 'user', content: 'What is a router?' }];
const models = await client.models.list();
check('models', models.data.some((m) => m.id === 'model'), models.data);
const one = await client.models.retrieve('model');
check('one of them', one.id === 'model' && one.object === 'model' && one.owned_by !== undefined, one);
await refused('none of them', 404, OpenAI.NotFoundError, () => client.models.retrieve('other/model'));

const chat = await client.chat.completions.create({ model: 'model', messages, max_tokens: 20 });
check('chat', chat.choices[0].message.content.length > 0 && chat.usage.completion_tokens === 20, chat);

let text = '', finish = null, chunks = 0;
for await (const part of await client.chat.completions.create({ model: 'model', messages, max_tokens: 20, stream: true })) {
  text += part.choices[0]?.delta?.content ?? '';
  finish = part.choices[0]?.finish_reason ?? finish;
  chunks++;
}
check('a streamed chat says the same', text === chat.choices[0].message.content && finish === 'length' && chunks > 5, [text, finish, chunks]);

const helper = client.chat.completions.stream({ model: 'model', messages, max_tokens: 10 });
const final = await helper.finalChatCompletion();
check('the stream helper', final.choices[0].message.content.length > 0, final);

const plain = await client.completions.create({ model: 'model', prompt: [1, 2, 3, 4], max_tokens: 5 });
check('a completion of ids', plain.choices[0].text.length > 0 && plain.usage.prompt_tokens === 4, plain);

const embedding = await client.embeddings.create({ model: 'model', input: 'x', encoding_format: 'float' });
check('embeddings', embedding.data[0].embedding.length > 0, embedding);

const { data, response } = await client.completions.create({ model: 'model', prompt: 'x', max_tokens: 1 },
  { headers: { 'x-kvroute-explain': '1' } }).withResponse();
check('headers of the choice', response.headers.get('x-kvroute-worker') === '101' && data.object === 'text_completion', [...response.headers]);

// Cancelled in the middle.
const long = await client.completions.create({ model: 'model', prompt: 'x', max_tokens: 1000, stream: true });
let seen = 0;
for await (const part of long) {
  seen += part.choices.length;
  if (seen === 3) long.controller.abort();
}
check('cancelling ends the stream', seen >= 3 && seen < 900, seen);

await refused('no such model', 404, OpenAI.NotFoundError, () => client.completions.create({ model: 'other', prompt: 'x' }));
await refused('a wrong type', 400, OpenAI.BadRequestError, () => client.completions.create({ model: 'model', prompt: 7 }));
await refused("the engine's own refusal", 400, OpenAI.BadRequestError,
  () => client.chat.completions.create({ model: 'model', messages: [] }));
const many = await Promise.all([...Array(32).keys()].map((i) =>
  client.completions.create({ model: 'model', prompt: `prompt ${i % 4}`, max_tokens: 8 })));
check('32 at once', many.every((m) => m.usage.completion_tokens === 8), many[0]);
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
