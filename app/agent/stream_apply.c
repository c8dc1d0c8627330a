/* SPDX-License-Identifier: BSD-3-Clause */
/* From batches to the table of a rank, and from there to the router. */
#include "canary.h"
#include "stream.h"

#include <stdio.h>

/* ---- from the table to the router ---- */

static void on_stored(void *user, enum kvr_tier tier, const uint64_t *parent, const uint64_t sh[],
		      uint32_t n)
{
	const struct app_stream *stream = user;
	const struct kvr_agent_kv kv = {.tier = tier,
					.has_parent = parent != NULL,
					.parent = parent != NULL ? *parent : 0,
					.hashes = sh,
					.n = n};

	app_canary_stored(stream->app, sh, n);
	if (stream->app->agent != NULL)
		kvr_agent_kv_stored(stream->app->agent, stream->dp_rank, &kv);
}

static void on_removed(void *user, enum kvr_tier tier, const uint64_t sh[], uint32_t n)
{
	const struct app_stream *stream = user;
	const struct kvr_agent_kv kv = {.tier = tier, .hashes = sh, .n = n};

	if (stream->app->agent != NULL)
		kvr_agent_kv_removed(stream->app->agent, stream->dp_rank, &kv);
}

static void on_cleared(void *user)
{
	const struct app_stream *stream = user;

	if (stream->app->agent != NULL)
		kvr_agent_kv_cleared(stream->app->agent, stream->dp_rank);
}

int app_stream_dump(struct app *app, uint32_t dp_rank, uint64_t pos, struct kvr_agent_kv *kv)
{
	struct app_stream *stream;
	struct kvr_kvmap_run run;

	if (app->streams == NULL || dp_rank - app->o.first_rank >= app->o.ranks)
		return 0;
	stream = app->streams[dp_rank - app->o.first_rank];
	if (pos == 0)
		stream->dump_pos = 0;
	if (!kvr_kvmap_next(stream->map, &stream->dump_pos, &run))
		return 0;
	*kv = (struct kvr_agent_kv){.tier = run.tier,
				    .has_parent = run.has_parent,
				    .parent = run.parent,
				    .hashes = run.sh,
				    .n = run.n};
	return 1;
}

/* ---- batches ---- */

/* Report to the router, where operators see it. */
static void report_to_router(struct app_stream *stream)
{
	const struct kvr_kvmap_stats *st = kvr_kvmap_stats_get(stream->map);
	const uint64_t unread = kvr_cell_get(&st->unknown) + kvr_cell_get(&st->bad) +
				kvr_cell_get(&st->medium) + stream->bad_batches;
	const uint32_t size = kvr_kvmap_block_size(stream->map);

	if (stream->app->agent == NULL)
		return;
	kvr_agent_events_read(stream->app->agent, stream->dp_rank,
			      unread < UINT32_MAX ? (uint32_t)unread : UINT32_MAX,
			      size < UINT16_MAX ? (uint16_t)size : UINT16_MAX,
			      kvr_kvmap_eagle(stream->map));
}

static void reset_table(struct app_stream *stream, const char *why)
{
	kvr_cell_add(&stream->app->st.clean_starts, 1);
	app_log(stream->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
		"rank %u starts with an empty cache: %s", stream->dp_rank, why);
	kvr_kvmap_clear(stream->map);
}

/* Another engine may have another block size. */
static void renew_table(struct app_stream *stream, const char *why)
{
	reset_table(stream, why);
	kvr_kvmap_forget(stream->map);
	stream->size_reported = false;
	report_to_router(stream);
}

/* Call @p fn for the stream's rank, and for all ranks that it serves. */
static void for_each_rank(struct app_stream *stream, const char *why,
			  void (*fn)(struct app_stream *stream, const char *why))
{
	fn(stream, why);
	for (uint32_t i = 0; stream->others && i < stream->app->o.ranks; i++)
		if (stream->app->streams[i] != stream)
			fn(stream->app->streams[i], why);
}

void app_stream_clean(struct app_stream *stream, const char *why)
{
	for_each_rank(stream, why, reset_table);
}

void app_stream_renew(struct app_stream *stream, const char *why)
{
	for_each_rank(stream, why, renew_table);
}

static void look_at_block_size(struct app_stream *stream)
{
	const uint32_t size = kvr_kvmap_block_size(stream->map);

	if (stream->size_reported || size == 0)
		return;
	stream->size_reported = true;
	if (size != stream->app->block_size)
		app_log(stream->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"rank %u stores blocks of %u tokens, but the pool has %u, so the router cannot use them; start the engine with --block-size %u (SGLang: --page-size %u), or set block_size = %u for the pool and --block-size %u for this agent",
			stream->dp_rank, size, stream->app->block_size, stream->app->block_size,
			stream->app->block_size, size, size);
}

void app_stream_bad(struct app_stream *stream)
{
	kvr_cell_add(&stream->app->st.batches_bad, 1);
	stream->bad_batches++;
	report_to_router(stream);
}

static struct app_stream *of_rank(struct app_stream *stream, const struct kvr_kvev_batch *b)
{
	const struct agent_options *options = &stream->app->o;
	const uint32_t first = options->local_ranks ? 0 : options->first_rank;

	return b->has_rank && b->rank - first < options->ranks
		       ? stream->app->streams[b->rank - first]
		       : stream;
}

#define SAMPLE 48u /* bytes of a hexadecimal sample */

static void to_hex(const void *data, size_t len, char text[2 * SAMPLE + 1])
{
	text[0] = '\0';
	for (size_t i = 0; i < len && i < SAMPLE; i++)
		snprintf(text + 2 * i, 3, "%02x", ((const uint8_t *)data)[i]);
}

/* Log the beginning of an unreadable event, once a minute per kind. */
static void look_at_event(struct app_stream *stream, const struct kvr_kvev *ev)
{
	static const char *const words[] = {"an event of an unknown type",
					    "an event with a missing or invalid field",
					    "an event about an unknown medium"};
	const unsigned int kind = ev->type == KVR_KVEV_UNKNOWN	? 0
				  : ev->fault == KVR_KVEV_SHAPE ? 1
								: 2;
	char sample[2 * SAMPLE + 1];

	if ((ev->type != KVR_KVEV_UNKNOWN && ev->fault == KVR_KVEV_FINE) || ev->foreign ||
	    ev->other_group || !app_is_news(stream->app, &stream->odd[kind], words[kind]))
		return;
	to_hex(ev->raw.p, ev->raw.len, sample);
	app_log(stream->app, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING), "rank %u: %s: %s...",
		stream->dp_rank, words[kind], sample);
}

void app_stream_apply(struct app_stream *stream, const uint8_t *payload, size_t len)
{
	struct app_stream *to = stream;
	char sample[2 * SAMPLE + 1];
	struct kvr_kvev_batch batch;
	struct kvr_kvev ev;
	int rc = kvr_kvev_open(stream->decoder, payload, len, &batch);

	kvr_cell_add(&stream->app->st.batches, 1);
	agent_hang_received(&stream->app->hang, stream->app->now_us);
	if (rc == 0)
		to = of_rank(stream, &batch);
	stream->to = to;
	stream->others |= to != stream;
	while (rc == 0 && (rc = kvr_kvev_next(stream->decoder, &ev)) > 0) {
		rc = kvr_kvmap_apply(to->map, &ev);
		look_at_event(to, &ev);
	}
	look_at_block_size(to);
	report_to_router(to);
	if (rc == 0)
		return;
	app_stream_bad(to);
	to_hex(payload, len, sample);
	app_log(stream->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
		"rank %u: a batch of %zu bytes cannot be read: %s...", stream->dp_rank, len,
		sample);
	if (to == stream)
		app_stream_clean(stream, "a batch cannot be read");
	else
		reset_table(to, "a batch cannot be read");
}

struct kvr_kvmap *app_stream_table(struct app_stream *stream, uint32_t blocks, uint64_t seed)
{
	const struct kvr_kvmap_out out = {on_stored, on_removed, on_cleared, stream};

	return kvr_kvmap_create(stream->app->block_size, blocks, seed, &out);
}
