/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engines and their agents, one agent per router. A rank prefills one request at a time, then
 * streams the items that the client asked for. Faults are drawn per request.
 */
#include "failing.h"
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_agent_on.h"

#define FULL_NS (5 * SIM_MS)
#define REFUSED 77
#define FAILED	500
#define MUTE_NS (40 * SIM_S) /* agents give up an engine that does not answer a request */

/* ---- executions ---- */

static void new_execution(struct sim *s)
{
	if (s->n_executions == s->cap_executions) {
		s->cap_executions = s->cap_executions != 0 ? 2 * s->cap_executions : 256;
		s->execution = realloc(s->execution, s->cap_executions * sizeof(*s->execution));
		if (s->execution == NULL)
			abort();
	}
	s->n_executions++;
}

static struct execution *find_execution(struct sim *s, const struct seat *t, uint64_t handle)
{
	for (uint32_t i = t->engine->executions; i != 0; i = s->execution[i - 1].next)
		if (s->execution[i - 1].handle == handle &&
		    s->execution[i - 1].seat == t->node->router)
			return &s->execution[i - 1];
	return NULL;
}

static uint32_t count_active(const struct sim *s, const struct engine *e, uint32_t rank)
{
	uint32_t n = 0;

	for (uint32_t i = e->executions; i != 0; i = s->execution[i - 1].next)
		n += s->execution[i - 1].rank == rank;
	return n;
}

static void end_execution(struct sim *s, struct engine *e, struct execution *r)
{
	uint32_t *at = &e->executions;
	struct rank *k = &e->rank[r->rank];

	while (*at != (uint32_t)(r - s->execution) + 1)
		at = &s->execution[*at - 1].next;
	*at = r->next;
	if (r->task.begun)
		engine_drop(&k->model, r->task.id);
	r->state = EXECUTION_OVER;
	e->due_ns = s->now_ns; /* the next prefill may begin */
}

/* ---- callbacks of the agent ---- */

static void read_prompt(struct sim *s, const struct kvr_agent_request *q, uint32_t request,
			struct execution *r)
{
	const struct sim_request *a = &s->request[request];
	uint32_t tokens[SIM_PROMPT * SIM_BLOCK];

	r->n_hashes = a->n_tokens / SIM_BLOCK;
	r->hash = prompt_hashes(s, a->prompt);
	if (q->n_tokens == a->n_tokens)
		prompt_tokens(s, a->prompt, tokens, q->n_tokens);
	if (q->n_tokens != 0 && (q->n_tokens != a->n_tokens ||
				 memcmp(q->tokens, tokens, q->n_tokens * sizeof(tokens[0])) != 0))
		sim_fail(s, "request %u: its tokens are wrong", request);
	if (q->n_hashes != 0 && (q->n_hashes != r->n_hashes ||
				 memcmp(q->hashes, r->hash, q->n_hashes * sizeof(r->hash[0])) != 0))
		sim_fail(s, "request %u: its hashes are wrong", request);
}

/* Draw the faults of this execution. */
static void draw_bugs(struct sim *s, struct engine *e, struct execution *r, uint32_t items)
{
	if (!sim_faults(s))
		return;
	if (sim_chance(&e->rand, s->plan.bug_mute)) {
		r->state = EXECUTION_MUTE;
		r->at_ns = s->now_ns + MUTE_NS;
		r->fails_at = 0;
		sim_bug(SIM_BUG_MUTE);
	}
	if (sim_chance(&e->rand, s->plan.bug_error)) {
		r->fails_at = kvr_rand_below(&e->rand, items);
		sim_bug(SIM_BUG_ERROR);
	}
}

static int on_dispatch(struct kvr_agent *a, const struct kvr_agent_request *q, void *user)
{
	struct seat *t = user;
	struct engine *e = t->engine;
	struct sim *s = e->sim;
	const uint32_t engine = (uint32_t)(e - s->engine), no = s->n_executions;
	struct item_body b;
	struct execution *r;

	RTE_SET_USED(a);
	if (!oracle_check_body(s, q, &b))
		return REFUSED;
	oracle_check_once(s, t, q->handle, b.request);
	oracle_check_leg(s, e, q, b.request);
	if (q->dp_rank >= s->plan.ranks)
		sim_fail(s, "engine %u has no rank %u", engine, q->dp_rank);
	if (sim_faults(s) && sim_chance(&e->rand, s->plan.bug_refuse)) {
		sim_bug(SIM_BUG_REFUSED);
		return REFUSED;
	}
	new_execution(s);
	r = &s->execution[no];
	*r = (struct execution){.request = b.request,
				.before = s->request[b.request].last_execution,
				.engine = engine,
				.seat = t->node->router,
				.incarnation = e->incarnation,
				.rank = q->dp_rank,
				.attempt = q->attempt,
				.prefill = q->leg == KVR_ROLE_PREFILL,
				.task = {.id = no},
				.handle = q->handle,
				.at_ns = s->now_ns,
				.began_ns = s->now_ns,
				.state = EXECUTION_QUEUED,
				.fails_at = UINT32_MAX,
				.next = e->executions};
	draw_bugs(s, e, r, r->prefill ? 1 : s->request[b.request].items);
	failing_dispatch(e, r);
	read_prompt(s, q, b.request, r);
	oracle_check_overlap(s, r, q->overlap_blocks);
	oracle_check_open(s, r);
	s->request[b.request].last_execution = no + 1;
	e->executions = no + 1;
	e->due_ns = s->now_ns;
	sim_digest(s, (uint64_t)b.request << 32 | engine, q->handle);
	return 0;
}

static void on_abort(struct kvr_agent *a, uint64_t handle, enum kvr_agent_abort why, uint16_t code,
		     void *user)
{
	struct seat *t = user;
	struct sim *s = t->engine->sim;
	struct execution *r = find_execution(s, t, handle);
	const struct kvr_agent_item late = {.flags = KVR_AGENT_LAST};

	RTE_SET_USED(code);
	if (r == NULL) {
		sim_fail(s, "an abort arrived for an execution that has ended");
		return;
	}
	end_execution(s, t->engine, r);
	if (why == KVR_AGENT_ABORT_CLOSED || !sim_chance(&t->engine->rand, s->plan.bug_after))
		return;
	sim_bug(SIM_BUG_AFTER);
	if (kvr_agent_respond(a, handle, &late) != -ENOENT)
		sim_fail(s, "the agent accepted an answer after the abort");
}

static void on_done(struct kvr_agent *a, uint64_t handle, void *user)
{
	struct seat *t = user;
	struct sim *s = t->engine->sim;
	struct execution *r = find_execution(s, t, handle);

	RTE_SET_USED(a);
	if (r == NULL || r->state != EXECUTION_SENT)
		sim_fail(s, "the agent reported an execution as done that has not ended");
	else
		end_execution(s, t->engine, r);
}

static void on_state(struct kvr_agent *a, const struct kvr_agent_status *st, void *user)
{
	struct seat *t = user;
	struct sim *s = t->engine->sim;

	RTE_SET_USED(a);
	if (s->verbose && st->state != t->state)
		sim_log(s, "engine %td, router %u: state %u, reject %u %s", t->engine - s->engine,
			t->node->router, st->state, st->reject, st->text);
	t->state = st->state;
}

/* ---- work ---- */

/* Equal in all executions of a request. The item of a failed execution is a short text. A small
 * router takes no long result. */
static uint32_t item_len(const struct sim *s, uint32_t request, uint32_t no, bool prefill,
			 bool fails)
{
	const uint32_t len = sizeof(struct item_body) + (request * 7 + no) % 200;
	const uint64_t r = kvr_mix64(s->plan.seed ^ (uint64_t)request << 32 ^ no);

	if (!fails && !prefill && no + 1 < s->request[request].items &&
	    request_is_folded(s, request))
		return 0;
	if (fails || (prefill && s->plan.small_router) || r % 1000 >= s->plan.long_items)
		return len;
	return len + (uint32_t)(r >> 32) % (KVR_WIRE_MAX_ITEM - len + 1);
}

static void respond_item(struct sim *s, struct engine *e, struct execution *r)
{
	static uint8_t data[KVR_WIRE_MAX_ITEM];
	const struct sim_request *a = &s->request[r->request];
	const uint32_t no = (uint32_t)(r - s->execution);
	const uint32_t items = r->prefill ? 1 : a->items;
	const bool fails = r->made == r->fails_at;
	const struct item_body b = {r->request, no, r->made, items};
	struct seat *t = &e->seat[r->seat];
	struct kvr_agent_item it = {.data = data,
				    .len = item_len(s, r->request, r->made, r->prefill, fails),
				    .generated_tokens = r->made + 1,
				    .cached_known = true,
				    .cached_tokens = r->task.blocks * SIM_BLOCK};
	int rc;

	if (it.len > 0) {
		memcpy(data, &b, sizeof(b));
		body_fill(r->request, data, sizeof(b), it.len);
	}
	if (r->made + 1 == items)
		it.flags = KVR_AGENT_LAST;
	if (fails) {
		it.flags = KVR_AGENT_LAST | KVR_AGENT_ERROR | (r->counts ? KVR_AGENT_FAILED : 0);
		it.status = FAILED;
	}
	rc = kvr_agent_respond(t->agent, r->handle, &it);
	r = &s->execution[no];
	if (rc == -ENOBUFS) {
		r->at_ns = s->now_ns + FULL_NS;
		return;
	}
	if (rc < 0) {
		sim_fail(s, "request %u: respond: %s", r->request, strerror(-rc));
		return;
	}
	r->made++;
	r->at_ns = s->now_ns + a->item_us * UINT64_C(1000);
	if (it.flags != 0) {
		r->state = EXECUTION_SENT;
		r->at_ns = SIM_NEVER;
	}
	t->node->due_ns = s->now_ns;
}

static void step_execution(struct sim *s, struct engine *e, struct execution *r)
{
	const struct engine_prompt prompt = {r->hash, r->n_hashes, 1, r->n_hashes + 1};
	struct rank *k = &e->rank[r->rank];

	switch (r->state) {
	case EXECUTION_QUEUED:
		if (k->model.prefilling != ENGINE_NO_TASK) {
			r->at_ns = SIM_NEVER;
			break;
		}
		r->state = EXECUTION_PREFILL;
		r->at_ns = s->now_ns + (uint64_t)engine_prefill_begin(&k->model, &r->task, &prompt);
		break;
	case EXECUTION_PREFILL:
		engine_prefill_end(&k->model);
		cache_store(s, e, r);
		engine_wake(e); /* the agents send the KV events */
		r->state = EXECUTION_DECODE;
		r->at_ns = s->now_ns + s->request[r->request].item_us * UINT64_C(1000);
		for (uint32_t i = e->executions; i != 0; i = s->execution[i - 1].next)
			if (s->execution[i - 1].state == EXECUTION_QUEUED)
				s->execution[i - 1].at_ns = s->now_ns;
		break;
	case EXECUTION_MUTE:
	case EXECUTION_DECODE:
		respond_item(s, e, r);
		break;
	default:
		r->at_ns = SIM_NEVER;
	}
}

static void step_executions(struct sim *s, struct engine *e)
{
	uint32_t next;

	e->due_ns = SIM_NEVER;
	for (uint32_t i = e->executions; i != 0; i = next) {
		next = s->execution[i - 1].next;
		if (s->execution[i - 1].state == EXECUTION_QUEUED &&
		    e->rank[s->execution[i - 1].rank].model.prefilling == ENGINE_NO_TASK)
			s->execution[i - 1].at_ns = s->now_ns;
		if (s->execution[i - 1].at_ns <= s->now_ns)
			step_execution(s, e, &s->execution[i - 1]);
		e->due_ns = RTE_MIN(e->due_ns, s->execution[i - 1].at_ns);
	}
}

/* ---- start and end ---- */

/* The epoch comes from the clock, as in a real process, and is above that of the previous
 * incarnation. */
static uint32_t epoch_now(const struct sim *s, struct engine *e)
{
	if (e->epoch != 0 && s->plan.bug_epoch) {
		sim_bug(SIM_BUG_EPOCH);
		return e->epoch;
	}
	if (e->epoch != 0 && sim_chance(&e->rand, s->plan.clock_back != 0 ? 500 : 0)) {
		sim_bug(SIM_BUG_CLOCK);
		e->epoch -= RTE_MIN(e->epoch - 1, 1 + kvr_rand_below(&e->rand, s->plan.clock_back));
		return e->epoch;
	}
	e->epoch = RTE_MAX(e->epoch + 1, (uint32_t)(s->now_ns / (10 * SIM_MS)));
	return e->epoch;
}

static int seat_begin(struct sim *s, struct engine *e, uint32_t router)
{
	static const struct kvr_agent_ops ops = {.on_dispatch = on_dispatch,
						 .on_abort = on_abort,
						 .on_done = on_done,
						 .on_state = on_state,
						 .on_dump = cache_dump};
	const uint32_t i = (uint32_t)(e - s->engine);
	struct seat *t = &e->seat[router];
	const struct kvr_agent_conf conf = {.worker = engine_worker(i),
					    .pool = e->prefill ? "p" : "m",
					    .role = !s->plan.pairs ? KVR_ROLE_AGGREGATED
						    : e->prefill   ? KVR_ROLE_PREFILL
								   : KVR_ROLE_DECODE,
					    .epoch = e->epoch,
					    .block_size = SIM_BLOCK,
					    .dp_size = s->plan.ranks,
					    .total_kv_blocks = s->plan.cache_blocks,
					    .max_num_batched_tokens = s->plan.queueing ? 512 : 8192,
					    .max_requests = 640,
					    .assembly_bytes = 1u << 20,
					    .kv_ring_bytes = 1u << 16,
					    .ops = &ops,
					    .user = t};
	struct node *n = &s->node[sim_engine_node(s, i, router)];
	const struct kvr_udp w = node_world(n);

	t->node = n;
	t->engine = e;
	node_rename(n);
	t->agent = kvr_agent__create_on(&conf, &s->node[router].addr, &w);
	if (t->agent == NULL)
		return -errno;
	t->state = KVR_AGENT_OFFLINE;
	n->up = true;
	n->due_ns = s->now_ns;
	return 0;
}

int engine_begin(struct sim *s, uint32_t i)
{
	struct engine *e = &s->engine[i];
	int rc = 0;

	if (e->incarnation++ == 0) {
		e->sim = s;
		e->prefill = s->plan.pairs && i % 2 != 0;
		kvr_rand_init(&e->rand, kvr_mix64(s->plan.seed + 0x10000 * (i + 1)));
	}
	e->epoch = epoch_now(s, e);
	e->executions = 0;
	e->leaving = e->asks_drain = false;
	e->due_ns = SIM_NEVER;
	for (uint32_t k = 0; k < s->plan.ranks; k++)
		if (cache_begin(s, e, k) < 0)
			return -ENOMEM;
	e->up = true;
	for (uint32_t r = 0; r < s->plan.routers && rc == 0; r++)
		rc = seat_begin(s, e, r);
	return rc;
}

static void seat_end(struct seat *t)
{
	t->node->mute = true;
	kvr_agent_destroy(t->agent);
	t->agent = NULL;
	t->node->mute = t->node->up = false;
	t->node->due_ns = SIM_NEVER;
	node_drop(t->node);
	free(t->dump);
	free(t->dump_hash);
	t->dump = NULL;
	t->dump_hash = NULL;
}

void agents_end(struct sim *s, uint32_t i)
{
	struct engine *e = &s->engine[i];

	for (uint32_t r = 0; r < s->plan.routers; r++)
		if (e->seat[r].agent != NULL)
			seat_end(&e->seat[r]);
	if (e->executions != 0)
		sim_fail(s, "engine %u: an execution is left after the end of its agents", i);
	e->due_ns = SIM_NEVER;
}

int agents_begin(struct sim *s, uint32_t i)
{
	struct engine *e = &s->engine[i];
	int rc = 0;

	if (!e->up || e->seat[0].agent != NULL)
		return 0;
	e->epoch = epoch_now(s, e);
	e->leaving = e->asks_drain = false;
	for (uint32_t r = 0; r < s->plan.routers && rc == 0; r++)
		rc = seat_begin(s, e, r);
	for (uint32_t k = 0; k < s->plan.ranks && rc == 0; k++) {
		e->rank[k].dirty = true; /* the agents request a dump of the cache */
		cache_mend(s, e, k);
	}
	return rc;
}

void engine_end(struct sim *s, uint32_t i)
{
	struct engine *e = &s->engine[i];

	if (!e->up)
		return;
	agents_end(s, i);
	for (uint32_t k = 0; k < s->plan.ranks; k++)
		cache_end(e, k);
	e->up = false;
	e->due_ns = SIM_NEVER;
}

void engine_leave(struct engine *e)
{
	for (uint32_t r = 0; r < e->sim->plan.routers; r++)
		kvr_agent_goodbye(e->seat[r].agent);
	engine_wake(e);
}

void engine_drain(struct engine *e, bool on)
{
	e->asks_drain = on;
	for (uint32_t r = 0; r < e->sim->plan.routers; r++)
		kvr_agent_drain(e->seat[r].agent, on);
	engine_wake(e);
}

void engine_suspend(struct engine *e, uint64_t until_ns)
{
	for (uint32_t r = 0; r < e->sim->plan.routers; r++)
		e->seat[r].node->paused_until_ns = until_ns;
}

uint64_t engine_due_ns(const struct sim *s, uint32_t i)
{
	const struct engine *e = &s->engine[i];
	uint64_t due = e->due_ns;

	if (!e->up)
		return SIM_NEVER;
	for (uint32_t r = 0; r < s->plan.routers; r++)
		due = RTE_MIN(due, e->seat[r].node->due_ns);
	return RTE_MAX(due, e->seat[0].node->paused_until_ns);
}

static void seat_run(struct sim *s, struct seat *t)
{
	struct node *n = t->node;
	uint64_t due;

	kvr_agent_process(t->agent);
	due = kvr_agent__due_us(t->agent);
	n->due_ns = due == UINT64_MAX ? SIM_NEVER : RTE_MAX(due * 1000, s->now_ns + 1000);
	if (!STAILQ_EMPTY(&n->rx))
		n->due_ns = s->now_ns + 1000;
}

void engine_run(struct sim *s, uint32_t i)
{
	struct engine *e = &s->engine[i];

	if (e->seat[0].agent == NULL) {
		e->due_ns = SIM_NEVER;
		return;
	}
	if (e->due_ns <= s->now_ns) {
		step_executions(s, e);
		for (uint32_t k = 0; k < s->plan.ranks; k++)
			for (uint32_t r = 0; r < s->plan.routers; r++)
				kvr_agent_load(e->seat[r].agent, k, count_active(s, e, k),
					       UINT64_MAX);
	}
	for (uint32_t r = 0; r < s->plan.routers; r++)
		if (e->seat[r].node->due_ns <= s->now_ns)
			seat_run(s, &e->seat[r]);
}
