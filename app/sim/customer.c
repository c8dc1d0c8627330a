/* SPDX-License-Identifier: BSD-3-Clause */
/* Clients: what they ask for, and what must come of it. */
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_client_hints.h"
#include "kvr_client_on.h"
#include "kvr_hash.h"

#define ANSWER_MS 20000u /* a request has so long */
#define TREES	  6u	 /* prompts begin like one of these */

/* ---- prompts ---- */

/* Tokens of block @k of a prompt: shared with its tree near the root, its own behind that. */
static uint64_t block_of(const struct sim *s, const struct ask *a, uint32_t k)
{
	const uint64_t tree = a->prompt % TREES;
	const uint32_t shared = (uint32_t)(kvr_mix64(s->plan.seed + tree) % (SIM_PROMPT / 2));
	const uint32_t branch = shared + (uint32_t)(kvr_mix64(a->prompt) % 16);

	if (k < shared)
		return kvr_mix64(tree << 32 | k);
	if (k < branch)
		return kvr_mix64((uint64_t)(a->prompt % 97) << 32 | k | UINT64_C(1) << 60);
	return kvr_mix64((uint64_t)a->prompt << 32 | k | UINT64_C(1) << 61);
}

void prompt_tokens(const struct sim *s, const struct ask *a, uint32_t *tokens)
{
	uint64_t w = 0;

	for (uint32_t i = 0; i < a->n_tokens; i++) {
		if (i % SIM_BLOCK == 0)
			w = block_of(s, a, i / SIM_BLOCK);
		tokens[i] = (uint32_t)(w >> (i % SIM_BLOCK)) & 0xffff;
	}
}

uint32_t prompt_hashes(const uint32_t *tokens, uint32_t n, uint64_t *sh)
{
	const struct kvr_hash_params p = {.seed = KVR_HASH_SEED, .block_size = SIM_BLOCK};
	const int k = kvr_hash_tokens(&p, tokens, n, NULL, sh, SIM_PROMPT);

	return k > 0 ? (uint32_t)k : 0;
}

uint8_t body_byte(uint32_t ask, uint32_t at)
{
	return (uint8_t)(ask * 31 + at * 7 + (at >> 8));
}

/* ---- answers ---- */

static struct ask *ask_of(struct sim *s, void *user)
{
	return &s->ask[(uintptr_t)user];
}

static struct sim *the_sim; /* callbacks have room for one word, which is the request's number */

static void on_item(struct kvr_client *c, uint64_t id, const struct kvr_client_item *it, void *user)
{
	struct sim *s = the_sim;
	struct ask *a = ask_of(s, user);
	struct item_body b;

	RTE_SET_USED(c);
	RTE_SET_USED(id);
	sim_note(s, (uint64_t)(uintptr_t)user << 32 | it->seq, it->flags);
	if (a->over)
		sim_fail(s, "request %td: an item after its end", a - s->ask);
	if (it->seq != a->got)
		sim_fail(s, "request %td: item %u where %u is due", a - s->ask, it->seq, a->got);
	a->got++;
	if (it->len < sizeof(b)) {
		/* The router's own word, in place of what an engine cannot say any more. */
		if ((it->flags & KVR_CLIENT_ITEM_ERROR) == 0)
			sim_fail(s, "request %td: item %u has %u bytes", a - s->ask, it->seq,
				 it->len);
		return;
	}
	memcpy(&b, it->data, sizeof(b));
	if (b.ask != (uint32_t)(a - s->ask) || b.no != it->seq || b.run >= s->n_runs)
		sim_fail(s, "request %td: item %u is item %u of request %u", a - s->ask, it->seq,
			 b.no, b.ask);
	else if (a->run != 0 && a->run != b.run + 1)
		sim_fail(s, "request %td: item %u is of execution %u, those before of %u",
			 a - s->ask, it->seq, b.run, a->run - 1);
	else
		a->run = b.run + 1;
	for (uint32_t i = sizeof(b); i < it->len; i++)
		if (((const uint8_t *)it->data)[i] != body_byte(b.ask, i)) {
			sim_fail(s, "request %u: byte %u of item %u is wrong", b.ask, i, b.no);
			break;
		}
}

/* The network is well, the router, too, and nobody has asked for an end. */
static bool nothing_may_fail(const struct sim *s)
{
	const struct sim_plan drawn = s->plan;
	const uint32_t bad = drawn.loss + drawn.copies + drawn.late + drawn.broken + drawn.cuts +
			     drawn.clogs + drawn.router_kills + drawn.engine_kills +
			     drawn.engine_leaves + drawn.engine_pauses + drawn.engine_moves +
			     drawn.client_kills + drawn.client_pauses + drawn.router_pauses +
			     drawn.stalls + drawn.small_router + drawn.bug_mute + drawn.bug_error +
			     drawn.bug_refuse + drawn.queueing + drawn.sessions + drawn.jitter_us;

	return bad == 0;
}

static void on_end(struct kvr_client *c, uint64_t id, const struct kvr_client_end *e, void *user)
{
	struct sim *s = the_sim;
	struct ask *a = ask_of(s, user);

	RTE_SET_USED(c);
	RTE_SET_USED(id);
	sim_note(s, (uint64_t)(uintptr_t)user << 32 | 0xffff, e->reason);
	a->outcomes++;
	a->over = true;
	a->reason = e->reason;
	s->ends[e->reason % RTE_DIM(s->ends)]++;
	if (s->verbose && e->reason != KVR_CLIENT_FINISHED)
		sim_say(s, "request %td of client %u ends: reason %u code %u %s, %u items",
			a - s->ask, a->client, e->reason, e->code, e->text != NULL ? e->text : "",
			e->items);
	if (a->outcomes != 1)
		sim_fail(s, "request %td: outcome number %u", a - s->ask, a->outcomes);
	if (e->reason == KVR_CLIENT_FINISHED &&
	    (a->run == 0 || a->got != a->items || s->run[a->run - 1].made != a->items))
		sim_fail(s, "request %td: finished with %u items of %u", a - s->ask, a->got,
			 a->items);
	if (a->killed)
		return;
	if (e->reason != KVR_CLIENT_FINISHED &&
	    (a->probe || (nothing_may_fail(s) && !a->cancelled)))
		sim_fail(s, "request %td: reason %u, code %u (%s) and nothing is wrong", a - s->ask,
			 e->reason, e->code, e->text != NULL ? e->text : "");
}

/* ---- asking ---- */

static struct ask *new_ask(struct sim *s, uint32_t i)
{
	struct kvr_rand *r = &s->customer[i].node->rand;
	struct ask *a;

	if (s->n_asks == s->cap_asks) {
		s->cap_asks = s->cap_asks != 0 ? 2 * s->cap_asks : 256;
		s->ask = realloc(s->ask, s->cap_asks * sizeof(*s->ask));
		if (s->ask == NULL)
			abort();
	}
	a = &s->ask[s->n_asks++];
	*a = (struct ask){.client = i,
			  .life = s->customer[i].node->life,
			  .n_tokens = 1 + kvr_rand_below(r, SIM_PROMPT * SIM_BLOCK - 1),
			  .items = 1 + kvr_rand_below(r, 12),
			  .item_us = 200 + kvr_rand_below(r, 30000),
			  .body_len = sizeof(struct item_body) + kvr_rand_below(r, 300),
			  .prompt = kvr_rand_below(r, 400),
			  .asked_ns = s->now_ns,
			  .cancel_ns = SIM_NEVER};
	if (sim_chance(r, s->plan.large))
		a->body_len = 1000 + kvr_rand_below(r, 40000);
	return a;
}

static void add_session(const struct sim *s, uint32_t i, struct kvr_client_hints *h)
{
	struct kvr_rand *r = &s->customer[i].node->rand;
	const enum kvr_client_session what = (enum kvr_client_session)kvr_rand_below(r, 3);
	char id[32];

	snprintf(id, sizeof(id), "s%u-%u", i, kvr_rand_below(r, 4));
	kvr_client_hint_session(h, id, what,
				what == KVR_CLIENT_SESSION_OPEN ? 1 + kvr_rand_below(r, 8) : 0);
}

static void submit(struct sim *s, uint32_t i, bool probe)
{
	static const struct kvr_client_ops ops = {.on_item = on_item, .on_end = on_end};
	struct customer *c = &s->customer[i];
	struct kvr_rand *r = &c->node->rand;
	struct ask *a = new_ask(s, i);
	uint32_t tokens[SIM_PROMPT * SIM_BLOCK];
	uint64_t sh[SIM_PROMPT];
	uint8_t *body = malloc(a->body_len);
	struct kvr_client_hints *h = NULL;
	struct kvr_client_request q = {.pool = SIM_POOL,
				       .isl = a->n_tokens,
				       .request_ms = ANSWER_MS,
				       .body = body,
				       .body_len = a->body_len,
				       .ops = &ops,
				       .user = (void *)(uintptr_t)(s->n_asks - 1)};
	int rc;

	for (uint32_t k = 0; k < a->body_len; k++)
		body[k] = body_byte(s->n_asks - 1, k);
	memcpy(body, &(const struct item_body){.ask = s->n_asks - 1, .of = a->items},
	       sizeof(struct item_body));
	prompt_tokens(s, a, tokens);
	if (sim_chance(r, s->plan.tokens)) {
		q.tokens = tokens;
		q.n_tokens = a->n_tokens;
	} else {
		q.n_hashes = prompt_hashes(tokens, a->n_tokens, sh);
		q.hashes = q.n_hashes != 0 ? sh : NULL;
	}
	if (sim_chance(r, s->plan.directs))
		q.flags |= KVR_CLIENT_DIRECT;
	if (!probe && sim_chance(r, s->plan.sessions) && (h = kvr_client_hints_create()) != NULL) {
		add_session(s, i, h);
		q.hints = h;
	}
	a->probe = probe;
	if (!probe && sim_chance(r, s->plan.cancels))
		a->cancel_ns = s->now_ns + kvr_rand_below(r, 500) * SIM_MS;
	rc = kvr_client_submit(c->client, &q, &a->id);
	a->source = kvr_client_source(c->client);
	kvr_client_hints_destroy(h);
	free(body);
	if (rc == -EBUSY && !probe)
		s->n_asks--; /* it has as many as it may */
	else if (rc < 0)
		sim_fail(s, "client %u: submit: %s", i, strerror(-rc));
}

void customer_probe(struct sim *s, uint32_t i)
{
	submit(s, i, true);
	s->customer[i].node->due_ns = s->now_ns;
}

static void cancel_some(struct sim *s, uint32_t i)
{
	for (uint32_t k = s->n_asks > 2000 ? s->n_asks - 2000 : 0; k < s->n_asks; k++) {
		struct ask *a = &s->ask[k];

		if (a->client == i && a->cancel_ns <= s->now_ns && !a->over &&
		    a->life == s->customer[i].node->life) {
			a->cancel_ns = SIM_NEVER;
			a->cancelled = true;
			kvr_client_cancel(s->customer[i].client, a->id);
		}
	}
}

/* ---- life ---- */

int customer_begin(struct sim *s, uint32_t i)
{
	struct customer *c = &s->customer[i];
	struct node *n = &s->node[sim_client_node(s, i)];
	const struct kvr_client_conf conf = {.max_requests = 128};
	const struct kvr_udp w = node_world(n);

	the_sim = s;
	c->node = n;
	node_rename(n);
	c->client = kvr_client__create_on(&conf, &sim_router_addr, &w);
	if (c->client == NULL)
		return -errno;
	kvr_client_connect(c->client);
	n->up = true;
	n->due_ns = s->now_ns;
	c->next_ask_ns = s->now_ns + (1000 + kvr_rand_below(&n->rand, 1000)) * SIM_MS;
	return 0;
}

void customer_end(struct sim *s, uint32_t i, bool quietly)
{
	struct customer *c = &s->customer[i];

	if (!c->node->up)
		return;
	for (uint32_t k = 0; k < s->n_asks; k++)
		if (s->ask[k].client == i && !s->ask[k].over)
			s->ask[k].killed = true;
	c->node->mute = quietly;
	kvr_client_destroy(c->client);
	c->client = NULL;
	c->node->mute = c->node->up = false;
	c->node->due_ns = SIM_NEVER;
	node_drop(c->node);
}

static bool asks(const struct sim *s)
{
	return s->phase == PHASE_FAULTS;
}

uint64_t customer_due_ns(const struct sim *s, uint32_t i)
{
	const struct customer *c = &s->customer[i];
	uint64_t at;

	if (!c->node->up)
		return SIM_NEVER;
	at = asks(s) ? RTE_MIN(c->node->due_ns, c->next_ask_ns) : c->node->due_ns;
	return RTE_MAX(at, c->node->still_until_ns);
}

void customer_run(struct sim *s, uint32_t i)
{
	struct customer *c = &s->customer[i];
	uint64_t due;

	if (asks(s) && c->next_ask_ns <= s->now_ns) {
		submit(s, i, false);
		c->next_ask_ns =
			s->now_ns +
			kvr_rand_below(&c->node->rand, 2000000 / s->plan.rate) * UINT64_C(1000);
	}
	if (s->plan.cancels != 0 && sim_faults(s))
		cancel_some(s, i);
	kvr_client_process(c->client);
	due = kvr_client__due_us(c->client);
	if (due == UINT64_MAX)
		c->node->due_ns = SIM_NEVER;
	else
		c->node->due_ns = RTE_MAX(due * 1000, s->now_ns + 1000);
	if (!STAILQ_EMPTY(&c->node->rx))
		c->node->due_ns = s->now_ns + 1000;
}

uint32_t customers_waiting(const struct sim *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->plan.clients; i++)
		n += s->customer[i].client != NULL ? kvr_client_in_flight(s->customer[i].client)
						   : 0;
	return n;
}
