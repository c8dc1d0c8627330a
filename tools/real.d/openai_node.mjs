// SPDX-License-Identifier: BSD-3-Clause
// The openai package for Node: openai_node.mjs BASE_URL FOLDER, where node_modules of FOLDER has the package.
import { createRequire } from 'node:module';

const [baseURL, folder] = process.argv.slice(2);
const OpenAI = createRequire(`${folder}/`)('openai').default;
const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });
const messages = [{ role: 'user', content: 'Which block is cached?' }];
const ask = (more) => client.chat.completions.create({ model: 'llama', messages, max_tokens: 5, ...more });

async function check(name, test) {
	try {
		const good = await test();
		console.log(good === true ? `pass Node: ${name}` : `FAIL Node: ${name} -- ${JSON.stringify(good)}`);
	} catch (error) {
		console.log(`FAIL Node: ${name} -- ${error}`);
	}
}

async function readStream() {
	let pieces = 0;
	for await (const chunk of await ask({ stream: true }))
		pieces += chunk.choices[0]?.delta?.content ? 1 : 0;
	return pieces;
}

await check('models', async () => (await client.models.list()).data[0].id === 'llama');
await check('chat', async () => (await ask({})).usage.completion_tokens === 5);
await check('streamed chat', async () => (await readStream()) === 5);
await check('20 streams at once', async () => (await Promise.all(Array.from({ length: 20 }, readStream))).every((n) => n === 5));
await check('aborted stream', async () => {
	const stream = await ask({ stream: true, max_tokens: 1000 });
	for await (const _ of stream) break;
	return true;
});
await check('error of an unknown model', async () => {
	try {
		await ask({ model: 'none' });
		return 'no error';
	} catch (error) {
		return error instanceof OpenAI.NotFoundError || `${error}`;
	}
});
