/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engines behind their agents: a rank prefills one request at a time, as long as its uncached
 * blocks take, then streams the items its client has asked for. What engines do wrong is drawn for
 * each request.
 */
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_agent_on.h"

#define PREFILL_US 60u /* a block that is not cached */
#define FULL_NS	   (5 * SIM_MS)
#define REFUSED	   77
#define FAILED	   500

/* ---- executions ---- */

static uint32_t new_run(struct sim *s)
{
	if (s->n_runs == s->cap_runs) {
		s->cap_runs = s->cap_runs != 0 ? 2 * s->cap_runs : 256;
		s->run = realloc(s->run, s->cap_runs * sizeof(*s->run));
		if (s->run == NULL)
			abort();
	}
	return s->n_runs++;
}

static struct run *find_run(struct sim *s, const struct engine *e, uint64_t handle)
{
	for (uint32_t i = e->runs; i != 0; i = s->run[i - 1].next)
		if (s->run[i - 1].handle == handle)
			return &s->run[i - 1];
	return NULL;
}

static uint32_t active(const struct sim *s, const struct engine *e, uint32_t rank)
{
	uint32_t n = 0;

	for (uint32_t i = e->runs; i != 0; i = s->run[i - 1].next)
		n += s->run[i - 1].rank == rank;
	return n;
}

static void over(struct sim *s, struct engine *e, struct run *r)
{
	uint32_t *at = &e->runs;
	struct rank *k = &e->rank[r->rank];

	while (*at != (uint32_t)(r - s->run) + 1)
		at = &s->run[*at - 1].next;
	*at = r->next;
	if (k->busy == (uint32_t)(r - s->run) + 1)
		k->busy = 0;
	r->state = RUN_OVER;
	e->due_ns = s->now_ns; /* the next one may begin */
}

/* ---- what the agent says ---- */

/* The body is as its client has made it, or the router has broken it. */
static bool read_body(struct sim *s, const struct kvr_agent_request *q, struct item_body *b)
{
	const uint8_t *p = q->body;

	if (q->body_len < sizeof(*b)) {
		sim_fail(s, "a dispatch with a body of %u bytes", q->body_len);
		return false;
	}
	memcpy(b, p, sizeof(*b));
	if (b->ask >= s->n_asks || q->body_len != s->ask[b->ask].body_len ||
	    q->isl != s->ask[b->ask].n_tokens || q->id != s->ask[b->ask].id) {
		sim_fail(s, "a dispatch that nobody has asked for: %u, %u bytes", b->ask,
			 q->body_len);
		return false;
	}
	for (uint32_t i = sizeof(*b); i < q->body_len; i++)
		if (p[i] != body_byte(b->ask, i)) {
			sim_fail(s, "request %u: byte %u of its body is wrong", b->ask, i);
			return false;
		}
	return true;
}

static void read_prompt(struct sim *s, const struct kvr_agent_request *q, uint32_t ask,
			struct run *r)
{
	uint32_t tokens[SIM_PROMPT * SIM_BLOCK];
	uint64_t sh[SIM_PROMPT];

	prompt_tokens(s, &s->ask[ask], tokens);
	r->n_hashes = prompt_hashes(tokens, s->ask[ask].n_tokens, sh);
	memcpy(r->hash, sh, r->n_hashes * sizeof(sh[0]));
	if (q->n_tokens != 0 && (q->n_tokens != s->ask[ask].n_tokens ||
				 memcmp(q->tokens, tokens, q->n_tokens * sizeof(tokens[0])) != 0))
		sim_fail(s, "request %u: its tokens are wrong", ask);
	if (q->n_hashes != 0 &&
	    (q->n_hashes != r->n_hashes || memcmp(q->hashes, sh, q->n_hashes * sizeof(sh[0])) != 0))
		sim_fail(s, "request %u: its hashes are wrong", ask);
}

/* Never twice in this life. */
static void check_once(struct sim *s, uint32_t engine, uint32_t life, uint64_t handle, uint32_t ask)
{
	for (uint32_t i = s->ask[ask].last_run; i != 0; i = s->run[i - 1].before) {
		const struct run *r = &s->run[i - 1];

		if (r->engine == engine && r->life == life && r->handle == handle)
			sim_fail(s, "request %u is run twice by engine %u", ask, engine);
	}
}

static int on_dispatch(struct kvr_agent *a, const struct kvr_agent_request *q, void *user)
{
	struct engine *e = user;
	struct sim *s = e->node->sim;
	const uint32_t engine = (uint32_t)(e - s->engine);
	struct kvr_rand *rand = &e->node->rand;
	struct item_body b;
	struct run *r;
	uint32_t no;

	RTE_SET_USED(a);
	if (!read_body(s, q, &b))
		return REFUSED;
	check_once(s, engine, e->node->life, q->handle, b.ask);
	if (q->dp_rank >= s->plan.ranks)
		sim_fail(s, "engine %u has no rank %u", engine, q->dp_rank);
	if (sim_faults(s) && sim_chance(rand, s->plan.bug_refuse))
		return REFUSED;
	no = new_run(s);
	r = &s->run[no];
	*r = (struct run){.ask = b.ask,
			  .before = s->ask[b.ask].last_run,
			  .engine = engine,
			  .life = e->node->life,
			  .rank = q->dp_rank,
			  .attempt = q->attempt,
			  .handle = q->handle,
			  .at_ns = s->now_ns,
			  .state = RUN_QUEUED,
			  .fails_at = UINT32_MAX,
			  .next = e->runs};
	if (sim_faults(s) && sim_chance(rand, s->plan.bug_mute))
		r->state = RUN_MUTE;
	if (sim_faults(s) && sim_chance(rand, s->plan.bug_error))
		r->fails_at = kvr_rand_below(rand, s->ask[b.ask].items);
	read_prompt(s, q, b.ask, r);
	s->ask[b.ask].last_run = no + 1;
	e->runs = no + 1;
	e->due_ns = s->now_ns;
	sim_note(s, (uint64_t)b.ask << 32 | engine, q->handle);
	return 0;
}

static void on_abort(struct kvr_agent *a, uint64_t handle, enum kvr_agent_abort why, uint16_t code,
		     void *user)
{
	struct engine *e = user;
	struct sim *s = e->node->sim;
	struct run *r = find_run(s, e, handle);
	const struct kvr_agent_item late = {.flags = KVR_AGENT_LAST};

	RTE_SET_USED(code);
	if (r == NULL) {
		sim_fail(s, "an abort of an execution that is over");
		return;
	}
	over(s, e, r);
	if (why != KVR_AGENT_ABORT_CLOSED && sim_chance(&e->node->rand, s->plan.bug_after) &&
	    kvr_agent_respond(a, handle, &late) != -ENOENT)
		sim_fail(s, "an answer after the abort was taken");
}

static void on_done(struct kvr_agent *a, uint64_t handle, void *user)
{
	struct engine *e = user;
	struct sim *s = e->node->sim;
	struct run *r = find_run(s, e, handle);

	RTE_SET_USED(a);
	if (r == NULL || r->state != RUN_SENT)
		sim_fail(s, "an execution is done that has not ended");
	else
		over(s, e, r);
}

static void on_state(struct kvr_agent *a, const struct kvr_agent_status *st, void *user)
{
	struct engine *e = user;
	struct sim *s = e->node->sim;

	RTE_SET_USED(a);
	if (s->verbose && st->state != e->state)
		sim_say(s, "engine %td: state %u, reject %u %s", e - s->engine, st->state,
			st->reject, st->text);
	e->state = st->state;
}

/* ---- work ---- */

static void respond(struct sim *s, struct engine *e, struct run *r)
{
	static uint8_t data[9000];
	const struct ask *a = &s->ask[r->ask];
	const uint32_t no = (uint32_t)(r - s->run);
	const bool fails = r->made == r->fails_at;
	const struct item_body b = {r->ask, no, r->made, a->items};
	struct kvr_agent_item it = {.data = data,
				    .len = sizeof(b) + (r->ask * 7 + r->made) % 200,
				    .generated_tokens = r->made + 1,
				    .cached_known = true,
				    .cached_tokens = r->hits * SIM_BLOCK};
	int rc;

	memcpy(data, &b, sizeof(b));
	for (uint32_t i = sizeof(b); i < it.len; i++)
		data[i] = body_byte(r->ask, i);
	if (r->made + 1 == a->items)
		it.flags = KVR_AGENT_LAST;
	if (fails) {
		it.flags = KVR_AGENT_LAST | KVR_AGENT_ERROR;
		it.status = FAILED;
	}
	rc = kvr_agent_respond(e->agent, r->handle, &it);
	r = &s->run[no];
	if (rc == -ENOBUFS) {
		r->at_ns = s->now_ns + FULL_NS;
		return;
	}
	if (rc < 0) {
		sim_fail(s, "request %u: respond: %s", r->ask, strerror(-rc));
		return;
	}
	r->made++;
	r->at_ns = s->now_ns + a->item_us * UINT64_C(1000);
	if (it.flags != 0) {
		r->state = RUN_SENT;
		r->at_ns = SIM_NEVER;
	}
	e->node->due_ns = s->now_ns;
}

static void step(struct sim *s, struct engine *e, struct run *r)
{
	struct rank *k = &e->rank[r->rank];

	switch (r->state) {
	case RUN_QUEUED:
		if (k->busy != 0) {
			r->at_ns = SIM_NEVER;
			break;
		}
		k->busy = (uint32_t)(r - s->run) + 1;
		r->hits = cache_match(e, r);
		r->state = RUN_PREFILL;
		r->at_ns = s->now_ns + (r->n_hashes - r->hits + 1) * PREFILL_US * UINT64_C(1000);
		break;
	case RUN_PREFILL:
		k->busy = 0;
		cache_store(s, e, r);
		e->node->due_ns = s->now_ns; /* the agent tells it */
		r->state = RUN_DECODE;
		r->at_ns = s->now_ns + s->ask[r->ask].item_us * UINT64_C(1000);
		for (uint32_t i = e->runs; i != 0; i = s->run[i - 1].next)
			if (s->run[i - 1].state == RUN_QUEUED)
				s->run[i - 1].at_ns = s->now_ns;
		break;
	case RUN_DECODE:
		respond(s, e, r);
		break;
	default:
		r->at_ns = SIM_NEVER;
	}
}

static void work(struct sim *s, struct engine *e)
{
	uint32_t next;

	e->due_ns = SIM_NEVER;
	for (uint32_t i = e->runs; i != 0; i = next) {
		next = s->run[i - 1].next;
		if (s->run[i - 1].state == RUN_QUEUED && e->rank[s->run[i - 1].rank].busy == 0)
			s->run[i - 1].at_ns = s->now_ns;
		if (s->run[i - 1].at_ns <= s->now_ns)
			step(s, e, &s->run[i - 1]);
		e->due_ns = RTE_MIN(e->due_ns, s->run[i - 1].at_ns);
	}
}

/* ---- life ---- */

/* From the clock, as that of a program: above what a life before it may have gone on to. */
static uint32_t epoch_now(const struct sim *s, struct engine *e)
{
	if (e->epoch != 0 && s->plan.bug_epoch)
		return e->epoch;
	e->epoch = RTE_MAX(e->epoch + 1, (uint32_t)(s->now_ns / (10 * SIM_MS)));
	return e->epoch;
}

int engine_begin(struct sim *s, uint32_t i)
{
	static const struct kvr_agent_ops ops = {.on_dispatch = on_dispatch,
						 .on_abort = on_abort,
						 .on_done = on_done,
						 .on_state = on_state,
						 .on_dump = cache_dump};
	struct engine *e = &s->engine[i];
	struct node *n = &s->node[sim_engine_node(i)];
	const struct kvr_agent_conf conf = {.worker = engine_worker(i),
					    .pool = "m",
					    .epoch = epoch_now(s, e),
					    .block_size = SIM_BLOCK,
					    .dp_size = s->plan.ranks,
					    .total_kv_blocks = s->plan.cache_blocks,
					    .max_num_batched_tokens = s->plan.queueing ? 512 : 8192,
					    .max_requests = 4096,
					    .assembly_bytes = 1u << 20,
					    .kv_ring_bytes = 1u << 16,
					    .ops = &ops,
					    .user = e};
	const struct kvr_udp w = node_world(n);

	e->node = n;
	node_rename(n);
	e->runs = 0;
	e->leaving = false;
	e->due_ns = SIM_NEVER;
	for (uint32_t k = 0; k < s->plan.ranks; k++)
		if (cache_begin(s, e, k) < 0)
			return -ENOMEM;
	e->agent = kvr_agent__create_on(&conf, &sim_router_addr, &w);
	if (e->agent == NULL)
		return -errno;
	e->state = KVR_AGENT_OFFLINE;
	n->up = true;
	n->due_ns = s->now_ns;
	return 0;
}

void engine_end(struct sim *s, uint32_t i)
{
	struct engine *e = &s->engine[i];

	if (!e->node->up)
		return;
	e->node->mute = true;
	kvr_agent_destroy(e->agent);
	e->agent = NULL;
	if (e->runs != 0)
		sim_fail(s, "engine %u: an execution is left after the end of its agent", i);
	for (uint32_t k = 0; k < s->plan.ranks; k++)
		cache_end(e, k);
	e->node->mute = e->node->up = false;
	e->node->due_ns = e->due_ns = SIM_NEVER;
	node_drop(e->node);
}

uint64_t engine_due_ns(const struct sim *s, uint32_t i)
{
	const struct engine *e = &s->engine[i];

	if (!e->node->up)
		return SIM_NEVER;
	return RTE_MAX(RTE_MIN(e->due_ns, e->node->due_ns), e->node->still_until_ns);
}

void engine_run(struct sim *s, uint32_t i)
{
	struct engine *e = &s->engine[i];
	uint64_t due;

	if (e->due_ns <= s->now_ns) {
		work(s, e);
		for (uint32_t k = 0; k < s->plan.ranks; k++)
			kvr_agent_load(e->agent, k, active(s, e, k), UINT64_MAX);
	}
	if (e->node->due_ns > s->now_ns)
		return;
	kvr_agent_process(e->agent);
	due = kvr_agent__due_us(e->agent);
	e->node->due_ns = due == UINT64_MAX ? SIM_NEVER : RTE_MAX(due * 1000, s->now_ns + 1000);
	if (!STAILQ_EMPTY(&e->node->rx))
		e->node->due_ns = s->now_ns + 1000;
}
