// SPDX-License-Identifier: BSD-3-Clause
// /tokenize with a real vocabulary: node gateway_vocabulary.mjs PORT FOLDER, whose node_modules have gpt-tokenizer.
import { createServer } from 'node:http'

const [port, folder] = process.argv.slice(2)
const { encode, encodeChat } = await import(`${folder}/node_modules/gpt-tokenizer/esm/model/gpt-4o.js`)

createServer((request, response) => {
	const parts = []
	request.on('data', (part) => parts.push(part))
	request.on('end', () => {
		try {
			const say = JSON.parse(Buffer.concat(parts))
			const tokens = say.messages ? [...encodeChat(say.messages)] : encode(say.prompt)
			response.setHeader('content-type', 'application/json')
			response.end(JSON.stringify({ count: tokens.length, max_model_len: 131072, tokens }))
		} catch (e) {
			response.statusCode = 400
			response.end(String(e))
		}
	})
}).listen(Number(port), '127.0.0.1', () => console.log('ready'))
