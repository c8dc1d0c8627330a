/* SPDX-License-Identifier: BSD-3-Clause */
#include "stream.h"

#include "canary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <zmq.h>

#define TURN_BATCHES 256u    /* of one rank, before others have their turn */
#define REPLAY_US    3000000 /* of silence */
#define MAX_FRAMES   8
#define NONE	     UINT64_MAX

static uint64_t be64(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v = v << 8 | p[i];
	return v;
}

/* ---- what the table says goes to the router ---- */

static void on_stored(void *user, enum kvr_tier tier, const uint64_t *parent, const uint64_t sh[],
		      uint32_t n)
{
	const struct app_stream *s = user;
	const struct kvr_agent_kv kv = {.tier = tier,
					.has_parent = parent != NULL,
					.parent = parent != NULL ? *parent : 0,
					.hashes = sh,
					.n = n};

	app_canary_stored(s->app, sh, n);
	if (s->app->agent != NULL)
		kvr_agent_kv_stored(s->app->agent, s->dp_rank, &kv);
}

static void on_removed(void *user, enum kvr_tier tier, const uint64_t sh[], uint32_t n)
{
	const struct app_stream *s = user;
	const struct kvr_agent_kv kv = {.tier = tier, .hashes = sh, .n = n};

	if (s->app->agent != NULL)
		kvr_agent_kv_removed(s->app->agent, s->dp_rank, &kv);
}

static void on_cleared(void *user)
{
	const struct app_stream *s = user;

	if (s->app->agent != NULL)
		kvr_agent_kv_cleared(s->app->agent, s->dp_rank);
}

int app_stream_dump(struct app *a, uint32_t dp_rank, uint64_t pos, struct kvr_agent_kv *kv)
{
	struct app_stream *s;
	struct kvr_kvmap_run run;

	if (a->streams == NULL || dp_rank - a->o.first_rank >= a->o.ranks)
		return 0;
	s = a->streams[dp_rank - a->o.first_rank];
	if (pos == 0)
		s->dump_pos = 0;
	if (!kvr_kvmap_next(s->map, &s->dump_pos, &run))
		return 0;
	*kv = (struct kvr_agent_kv){.tier = run.tier,
				    .has_parent = run.has_parent,
				    .parent = run.parent,
				    .hashes = run.sh,
				    .n = run.n};
	return 1;
}

/* ---- batches ---- */

static void start_clean(struct app_stream *s, const char *why)
{
	kvr_cell_add(&s->app->st.clean_starts, 1);
	app_log(s->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
		"rank %u starts with an empty cache: %s", s->dp_rank, why);
	kvr_kvmap_clear(s->map);
}

static void look_at_block_size(struct app_stream *s)
{
	const uint32_t size = kvr_kvmap_block_size(s->map);

	if (s->size_told || size == 0)
		return;
	s->size_told = true;
	if (size != s->app->o.block_size)
		app_log(s->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"rank %u stores blocks of %u tokens, the pool has %u: none of them is "
			"known to "
			"the router; start the engine with --block-size %u (SGLang: --page-size "
			"%u), "
			"or give the pool block_size = %u and this agent --block-size %u",
			s->dp_rank, size, s->app->o.block_size, s->app->o.block_size,
			s->app->o.block_size, size, size);
}

/* The router's operators look there, not at our standard error. */
static void tell_router(struct app_stream *s)
{
	const struct kvr_kvmap_stats *st = kvr_kvmap_stats_get(s->map);
	const uint64_t unread = kvr_cell_get(&st->unknown) + kvr_cell_get(&st->bad) +
				kvr_cell_get(&st->medium) + s->bad_batches;
	const uint32_t size = kvr_kvmap_block_size(s->map);

	if (s->app->agent == NULL)
		return;
	kvr_agent_events_read(
		s->app->agent, s->dp_rank, unread < UINT32_MAX ? (uint32_t)unread : UINT32_MAX,
		size < UINT16_MAX ? (uint16_t)size : UINT16_MAX, kvr_kvmap_eagle(s->map));
}

static void bad_batch(struct app_stream *s)
{
	kvr_cell_add(&s->app->st.batches_bad, 1);
	s->bad_batches++;
	tell_router(s);
}

static struct app_stream *of_rank(struct app_stream *s, const struct kvr_kvev_batch *b)
{
	const struct agent_options *o = &s->app->o;
	const uint32_t first = o->local_ranks ? 0 : o->first_rank;

	return b->has_rank && b->rank - first < o->ranks ? s->app->streams[b->rank - first] : s;
}

static void apply(struct app_stream *s, const uint8_t *payload, size_t len)
{
	struct app_stream *to = s;
	struct kvr_kvev_batch batch;
	struct kvr_kvev ev;
	int rc = kvr_kvev_open(s->decoder, payload, len, &batch);

	kvr_cell_add(&s->app->st.batches, 1);
	agent_quiet_heard(&s->app->quiet, s->app->now_us);
	if (rc == 0)
		to = of_rank(s, &batch);
	while (rc == 0 && (rc = kvr_kvev_next(s->decoder, &ev)) > 0)
		rc = kvr_kvmap_apply(to->map, &ev);
	look_at_block_size(to);
	tell_router(to);
	if (rc == 0)
		return;
	bad_batch(to);
	{
		char sample[2 * 48 + 1] = "";

		for (size_t i = 0; i < len && i < 48; i++)
			snprintf(sample + 2 * i, 3, "%02x", payload[i]);
		app_log(s->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"rank %u: a batch of %zu bytes cannot be read: %s...", s->dp_rank, len,
			sample);
	}
	start_clean(to, "a batch cannot be read");
}

/* ---- replay ---- */

static void ask_replay(struct app_stream *s, bool audit, uint64_t seen)
{
	uint8_t from[8];

	for (int i = 0; i < 8; i++)
		from[i] = (uint8_t)(s->next >> (56 - 8 * i));
	s->audit_us = s->app->now_us + s->app->o.audit_s * UINT64_C(1000000);
	if (s->dealer == NULL || zmq_send(s->dealer, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ||
	    zmq_send(s->dealer, from, 8, ZMQ_DONTWAIT) < 0) {
		if (audit)
			return;
		start_clean(s, "batches are missing and there is no replay socket");
		s->next = seen + 1;
		return;
	}
	kvr_cell_add(&s->app->st.replays, 1);
	s->replaying = true;
	s->begun = false;
	s->audit = audit;
	s->seen = seen;
	s->floor = s->next;
	s->replay_us = s->app->now_us + REPLAY_US;
}

static void end_replay(struct app_stream *s)
{
	s->replaying = false;
	if (s->seen != NONE && s->next <= s->seen) {
		start_clean(s, "the replay has not what is missing");
		s->next = s->seen + 1;
	}
}

/* Late answers must not be taken for those of the next question. */
static void drop_replay(struct app_stream *s)
{
	zmq_close(s->dealer);
	app_stream_open_dealer(s);
	end_replay(s);
}

static void give_up_replay(struct app_stream *s)
{
	if (!s->audit || s->seen != NONE)
		app_log(s->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"rank %u: no answer from the replay socket %s", s->dp_rank,
			s->app->o.replay);
	drop_replay(s);
}

static void disbelieve_replay(struct app_stream *s)
{
	app_log(s->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
		"rank %u: the replay socket %s answers what was not asked for", s->dp_rank,
		s->app->o.replay);
	bad_batch(s);
	drop_replay(s);
}

/* A replay goes on from `next` without gaps. It may begin later, when its engine has no more, but
 * not behind the batch that showed what is missing: that one has come by itself. */
static bool is_answer(const struct app_stream *s, uint64_t number)
{
	return number == s->next ||
	       (number > s->next && !s->begun && (s->seen == NONE || number <= s->seen));
}

/* One answer: [] [seq] [payload], or [] [topic] [seq] [payload]; the number -1 ends it. */
static void take_replay(struct app_stream *s, zmq_msg_t *frame, int n)
{
	const bool framed = n >= 3 && n <= 4 && zmq_msg_size(&frame[n - 2]) == 8;
	const uint64_t number = framed ? be64(zmq_msg_data(&frame[n - 2])) : 0;

	if (framed && number == NONE) {
		end_replay(s);
		return;
	}
	if (!framed || !is_answer(s, number)) {
		disbelieve_replay(s);
		return;
	}
	s->replay_us = s->app->now_us + REPLAY_US;
	if (number > s->next) {
		if (!s->fresh)
			start_clean(s, "the replay begins behind what is missing");
		s->floor = number; /* it has not those before */
	}
	kvr_cell_add(&s->app->st.replayed, 1);
	s->begun = true;
	s->fresh = false;
	s->next = number + 1;
	apply(s, zmq_msg_data(&frame[n - 1]), zmq_msg_size(&frame[n - 1]));
}

/* ---- live ---- */

static void take_live(struct app_stream *s, zmq_msg_t *frame, int n)
{
	uint64_t number;

	if (n != 3 || zmq_msg_size(&frame[1]) != 8) {
		bad_batch(s);
		app_log(s->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"rank %u: a message of %d parts that is no batch", s->dp_rank, n);
		return;
	}
	number = be64(zmq_msg_data(&frame[1]));
	if (s->fresh && s->dealer == NULL)
		s->next = number;
	if (number < s->next && number >= s->floor)
		return; /* a replay had it */
	if (number < s->next) {
		kvr_cell_add(&s->app->st.regressions, 1);
		start_clean(s, "the numbers of its batches went back");
		s->next = s->floor = 0;
		s->fresh = true;
	}
	if (number > s->next) {
		kvr_cell_add(&s->app->st.gaps, 1);
		ask_replay(s, false, number);
		if (s->replaying)
			return; /* it has this one, too */
		s->next = number;
	}
	s->fresh = false;
	s->next = s->floor = number + 1; /* what a replay had is behind us */
	apply(s, zmq_msg_data(&frame[2]), zmq_msg_size(&frame[2]));
}

/* All parts of one message. @return their number, 0: nothing there; too many are dropped. */
static int receive(void *socket, zmq_msg_t frame[MAX_FRAMES])
{
	int n = 0, more = 1;

	while (more) {
		zmq_msg_t *f = &frame[n < MAX_FRAMES ? n : MAX_FRAMES - 1];

		if (n >= MAX_FRAMES)
			zmq_msg_close(f);
		zmq_msg_init(f);
		if (zmq_msg_recv(f, socket, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(f);
			break;
		}
		more = zmq_msg_more(f);
		n++;
	}
	return n;
}

static void release(zmq_msg_t frame[], int n)
{
	for (int i = 0; i < n && i < MAX_FRAMES; i++)
		zmq_msg_close(&frame[i]);
}

/* The connection to the engine is new: it may be another engine, and we know nothing of it. */
static void connected(struct app_stream *s)
{
	if (!s->fresh || s->next != 0) {
		start_clean(s, "the connection to its events is a new one");
		s->next = s->floor = 0;
		s->fresh = true;
	}
	if (!s->replaying)
		ask_replay(s, true, NONE);
}

static void turn(struct app_stream *s)
{
	zmq_msg_t frame[MAX_FRAMES];
	unsigned int taken = 0;
	int n;

	while ((n = receive(s->monitor, frame)) > 0) {
		connected(s);
		release(frame, n);
	}
	while (s->replaying && taken < TURN_BATCHES && (n = receive(s->dealer, frame)) > 0) {
		take_replay(s, frame, n);
		release(frame, n);
		taken++;
	}
	if (s->replaying && taken == 0 && s->app->now_us > s->replay_us)
		give_up_replay(s);
	while (!s->replaying && taken < TURN_BATCHES && (n = receive(s->sub, frame)) > 0) {
		take_live(s, frame, n);
		release(frame, n);
		taken++;
	}
	if (taken == TURN_BATCHES)
		s->app->more = true;
	if (!s->replaying && s->dealer != NULL && s->app->now_us > s->audit_us)
		ask_replay(s, true, NONE);
}

void app_streams_turn(struct app *a)
{
	for (uint32_t i = 0; a->streams != NULL && a->streams[0]->sub != NULL && i < a->o.ranks;
	     i++)
		turn(a->streams[i]);
}

/* ---- life ---- */

static struct app_stream *new_stream(struct app *a, uint32_t dp_rank, uint32_t blocks)
{
	struct app_stream *s = calloc(1, sizeof(*s));
	const struct kvr_kvmap_out out = {on_stored, on_removed, on_cleared, s};
	uint64_t seed = 0;

	if (s == NULL)
		return NULL;
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) < 0)
		seed = a->now_us;
	s->app = a;
	s->dp_rank = dp_rank;
	s->fresh = true;
	s->seen = NONE;
	s->audit_us = a->now_us + a->o.audit_s * UINT64_C(1000000);
	s->decoder = kvr_kvev_create(a->o.type == 1);
	s->map = kvr_kvmap_create(a->o.block_size, blocks, seed, &out);
	return s;
}

int app_streams_start(struct app *a)
{
	uint64_t blocks = a->o.kv_blocks != 0	? a->o.kv_blocks
			  : a->prom.blocks != 0 ? 2 * a->prom.blocks
						: 1u << 20;

	if (blocks > 1u << 30)
		blocks = 1u << 30;
	a->streams = calloc(a->o.ranks, sizeof(a->streams[0]));
	if (a->streams == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < a->o.ranks; i++) {
		struct app_stream *s = new_stream(a, a->o.first_rank + i, (uint32_t)blocks);

		a->streams[i] = s;
		if (s == NULL || s->decoder == NULL || s->map == NULL)
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < a->o.ranks && a->o.events[0] != '\0'; i++) {
		const int rc = app_stream_open(a->streams[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

void app_streams_stop(struct app *a)
{
	for (uint32_t i = 0; a->streams != NULL && i < a->o.ranks; i++) {
		struct app_stream *s = a->streams[i];

		if (s == NULL)
			continue;
		app_stream_close(s);
		kvr_kvev_destroy(s->decoder);
		kvr_kvmap_destroy(s->map);
		free(s);
	}
	free(a->streams);
	a->streams = NULL;
}
