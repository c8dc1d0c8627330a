/* SPDX-License-Identifier: BSD-3-Clause */
#include "batches.h"

#include "kvr_hash.h"
#include "kvr_rand.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CHAINS	   512u
#define VOCABULARY 152000u

static uint8_t *put_be(uint8_t *p, uint8_t tag, uint64_t v, unsigned int bytes)
{
	*p++ = tag;
	for (unsigned int i = bytes; i-- > 0;)
		*p++ = (uint8_t)(v >> (8 * i));
	return p;
}

static uint8_t *put_text(uint8_t *p, const char *s)
{
	const size_t n = strlen(s);

	if (n < 32)
		*p++ = (uint8_t)(0xa0 | n);
	else
		p = put_be(p, 0xd9, n, 1);
	memcpy(p, s, n);
	return p + n;
}

static uint8_t *put_token(uint8_t *p, uint32_t t)
{
	return t < 128	   ? put_be(p, (uint8_t)t, 0, 0)
	       : t < 65536 ? put_be(p, 0xcd, t, 2)
			   : put_be(p, 0xce, t, 4);
}

static uint8_t *put_names(uint8_t *p, const uint64_t *names, uint32_t n)
{
	p = put_text(p, "block_hashes");
	p = put_be(p, 0xdc, n, 2);
	for (uint32_t i = 0; i < n; i++)
		p = put_be(p, 0xcf, names[i], 8);
	return p;
}

/* A map in the form of current vLLM. */
static uint8_t *put_stored(uint8_t *p, const uint64_t *names, const uint64_t *parent,
			   const uint32_t *tokens, uint32_t n)
{
	*p++ = 0x8a;
	p = put_text(put_text(p, "type"), "BlockStored");
	p = put_names(p, names, n);
	p = put_text(p, "parent_block_hash");
	p = parent != NULL ? put_be(p, 0xcf, *parent, 8) : put_be(p, 0xc0, 0, 0);
	p = put_text(p, "token_ids");
	p = put_be(p, 0xdc, (uint64_t)n * BATCHES_BLOCK, 2);
	for (uint32_t i = 0; i < n * BATCHES_BLOCK; i++)
		p = put_token(p, tokens[i]);
	p = put_be(put_text(p, "block_size"), BATCHES_BLOCK, 0, 0);
	p = put_be(put_text(p, "lora_id"), 0xc0, 0, 0);
	p = put_text(put_text(p, "medium"), "GPU");
	p = put_be(put_text(p, "lora_name"), 0xc0, 0, 0);
	p = put_be(put_text(p, "group_idx"), 0, 0, 0);
	return put_text(put_text(p, "kv_cache_spec_kind"), "full_attention");
}

static uint8_t *put_removed(uint8_t *p, const uint64_t *names, uint32_t n)
{
	*p++ = 0x84;
	p = put_text(put_text(p, "type"), "BlockRemoved");
	p = put_names(p, names, n);
	p = put_text(put_text(p, "medium"), "GPU");
	return put_be(put_text(p, "group_idx"), 0, 0, 0);
}

/* Collects events until a batch is full. */
struct writer {
	struct batches *out;
	uint8_t *buf, *p;
	uint32_t most, events;
};

static void close_batch(struct writer *w)
{
	struct batch *b = &w->out->batch[w->out->n];
	const size_t n = (size_t)(w->p - w->buf);

	if (w->events == 0)
		return;
	b->p = malloc(n + 16);
	b->len = 0;
	b->p[b->len++] = 0x93;
	b->p[b->len++] = 0xcb;
	memset(b->p + b->len, 0x40, 8);
	b->len += 8;
	put_be(b->p + b->len, 0xdc, w->events, 2);
	b->len += 3;
	memcpy(b->p + b->len, w->buf, n);
	b->len += n;
	b->p[b->len++] = 0; /* the rank */
	w->out->n++;
	w->out->events += w->events;
	w->out->bytes += b->len;
	w->p = w->buf;
	w->events = 0;
}

/* A chain of blocks with the engine's hashes (names) and ours (sh). */
struct chain {
	uint64_t *names, *sh;
	uint32_t *tokens;
	uint32_t len;
};

static void make_chain(struct chain *c, struct kvr_rand *r)
{
	const struct kvr_hash_params hp = {.seed = KVR_HASH_SEED, .block_size = BATCHES_BLOCK};

	for (uint32_t i = 0; i < c->len; i++)
		c->names[i] = kvr_rand_u64(r);
	for (uint32_t i = 0; i < c->len * BATCHES_BLOCK; i++)
		c->tokens[i] = kvr_rand_below(r, VOCABULARY);
	kvr_hash_tokens(&hp, c->tokens, c->len * BATCHES_BLOCK, NULL, c->sh, c->len);
}

static void write_chain(struct writer *w, const struct chain *c, uint32_t n, bool stores)
{
	for (uint32_t i = 0; i < c->len; i += n) {
		w->p = stores ? put_stored(w->p, c->names + i, i > 0 ? &c->names[i - 1] : NULL,
					   c->tokens + (size_t)i * BATCHES_BLOCK, n)
			      : put_removed(w->p, c->names + i, n);
		if (++w->events == w->most)
			close_batch(w);
	}
}

const struct batches_case batches_cases[2] = {{"one block", 1, 32, 64},
					      {"128 blocks", 128, 8, 512}};

void batches_make(struct batches *b, const struct batches_case *c)
{
	struct chain chain = {.names = malloc(c->chain * sizeof(chain.names[0])),
			      .sh = malloc(c->chain * sizeof(chain.sh[0])),
			      .tokens = malloc(c->chain * BATCHES_BLOCK * sizeof(chain.tokens[0])),
			      .len = c->chain};
	struct writer w = {.out = b, .most = c->events};
	struct kvr_rand r;

	*b = (struct batches){.blocks = CHAINS * c->chain};
	b->batch = calloc(2ul * b->blocks / c->blocks + 2, sizeof(b->batch[0]));
	w.buf = w.p = malloc(c->events * (c->blocks * (BATCHES_BLOCK * 5ul + 9) + 300));
	for (unsigned int pass = 0; pass < 2; pass++) {
		kvr_rand_init(&r, 7);
		for (uint32_t k = 0; k < CHAINS; k++) {
			make_chain(&chain, &r);
			for (uint32_t i = 0; i < c->chain && pass == 0; i++)
				b->sum += chain.sh[i];
			write_chain(&w, &chain, c->blocks, pass == 0);
		}
		close_batch(&w);
	}
	free(chain.names);
	free(chain.sh);
	free(chain.tokens);
	free(w.buf);
}

void batches_free(struct batches *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		free(b->batch[i].p);
	free(b->batch);
}
