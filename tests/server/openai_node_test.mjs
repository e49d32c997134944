// The official openai package for Node, as it is, against the server.
// usage: node tests/server/openai_node_test.mjs BASE_URL API_KEY MODEL GOLDEN_TEXT_JSON PACKAGE_FOLDER
import assert from 'node:assert/strict';
import fs from 'node:fs';
import {createRequire} from 'node:module';

const [baseURL, apiKey, model, goldenFile, packages] = process.argv.slice(2);
const {default: OpenAI} = createRequire(packages + '/package.json')('openai');
const golden = JSON.parse(fs.readFileSync(goldenFile, 'utf8')).float32;
const client = new OpenAI({baseURL, apiKey, maxRetries: 0});
const ask = (question, extra = {}) => ({
  model, messages: [{role: 'user', content: question}], temperature: 0, max_tokens: 160, ...extra,
});
const tool = {type: 'function', function: {name: 'lookup', parameters: {type: 'object', properties: {}}}};

const tests = {
  async models() {
    const names = (await client.models.list()).data.map((entry) => entry.id);
    assert.deepEqual(names, [model]);
    assert.equal((await client.models.retrieve(model)).id, model);
  },
  async chat() {
    for (const {question, text} of golden) {
      const answer = await client.chat.completions.create(ask(question));
      assert.equal(answer.choices[0].message.content, text);
    }
  },
  async 'chat, streamed'() {
    const stream = await client.chat.completions.create(
        ask('tar', {stream: true, stream_options: {include_usage: true}}));
    let text = '';
    let usage = null;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? '';
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, golden[0].text);
    assert.equal(usage.completion_tokens, golden[0].output_ids.length);
  },
  async 'stream helper'() {
    const runner = client.chat.completions.stream(ask('tar'));
    const final = await runner.finalChatCompletion();
    assert.equal(final.choices[0].message.content, golden[0].text);
  },
  async 'stream left early'() {
    const stream = await client.chat.completions.create(ask('tar', {stream: true}));
    for await (const chunk of stream) {
      assert.ok(chunk.id);
      break;
    }
  },
  async completion() {
    const answer = await client.completions.create(
        {model, prompt: golden[0].prompt_ids, temperature: 0, max_tokens: 160, logprobs: 1});
    assert.equal(answer.choices[0].text, golden[0].text);
    assert.equal(answer.choices[0].logprobs.tokens.join(''), golden[0].text);
  },
  async logprobs() {
    const answer = await client.chat.completions.create(
        ask('tar', {logprobs: true, top_logprobs: 2, max_tokens: 5}));
    assert.equal(answer.choices[0].logprobs.content.length, 5);
    assert.equal(answer.choices[0].logprobs.content[0].top_logprobs.length, 2);
  },
  async tools() {
    const answer = await client.chat.completions.create(ask('tar', {tools: [tool], max_tokens: 5}));
    assert.equal(answer.usage.completion_tokens, 5);
  },
  async errors() {
    await assert.rejects(client.chat.completions.create(ask('tar', {model: 'nobody'})),
                         OpenAI.NotFoundError);
    await assert.rejects(client.chat.completions.create(ask('tar', {temperature: 1e9})),
                         OpenAI.BadRequestError);
    // A field that nobody knows is served.
    await client.chat.completions.create(ask('tar', {temprature: 1, max_tokens: 2}));
    const stranger = new OpenAI({baseURL, apiKey: 'wrong', maxRetries: 0});
    await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.error(`FAILED ${name}:`, error);
  }
}
console.log(`${Object.keys(tests).length - failed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
