/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines with a rate limit per text, and output of counters. */
#include "app.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "stream.h"

#define TEXTS	64u
#define BURST	UINT64_C(8) /* lines per text at once; then one per second */
#define NEWS_US UINT64_C(60000000)

static const struct kvr_counter counters[] = {
	APP_COUNTER_LIST(KVR_COUNTER_ROW) KVR_COUNTER_END,
};
static const struct kvr_equation equations[] = {
	{KVR_TERMS(APP_REQUESTS), KVR_TERMS(APP_ANSWERED, APP_FAILED, APP_ABORTED, APP_RUNNING)},
	{0},
};
const struct kvr_stats_def app_stats_def = {"agent", counters, equations};

/* Rate limit of a format string, identified by its address. */
static struct text {
	const char *fmt;
	uint64_t next_us, left_out; /* the budget is exhausted until next_us */
} texts[TEXTS];

static struct text *text_of(const char *fmt)
{
	for (unsigned int i = 0; i < TEXTS; i++) {
		if (texts[i].fmt == NULL)
			texts[i].fmt = fmt;
		if (texts[i].fmt == fmt)
			return &texts[i];
	}
	return &texts[0];
}

void app_log(struct app *app, const struct kvr_log_about *about, const char *fmt, ...)
{
	struct kvr_log_about ours = *about;
	struct text *t = text_of(fmt);
	va_list ap;

	if (about->level > KVR_LOG_ERROR && app->o.quiet)
		return;
	if (t->next_us > app->now_us + BURST * 1000000) {
		t->left_out++;
		return;
	}
	t->next_us = (t->next_us > app->now_us ? t->next_us : app->now_us) + 1000000;
	ours.worker = app->o.worker != 0 ? &app->o.worker : NULL; /* 0: not chosen yet */
	ours.pool = app->o.pool;
	va_start(ap, fmt);
	kvr_log_vline(&ours, t->left_out, fmt, ap);
	va_end(ap);
	t->left_out = 0;
}

static void print_counters(const struct kvr_stats_def *def, const kvr_cell_t *row,
			   const char *prefix)
{
	for (unsigned int i = 0; i < kvr_stats_count(def); i++)
		fprintf(stderr, "%s%-20s %12" PRIu64 " %s, %s\n", prefix, def->counters[i].name,
			kvr_stats_get(row, i), def->counters[i].unit, def->counters[i].help);
}

bool app_is_news(const struct app *app, struct app_news *n, const char *what)
{
	if (*what != '\0' && strcmp(n->what, what) == 0 && app->now_us < n->again_us)
		return false;
	snprintf(n->what, sizeof(n->what), "%s", what);
	n->again_us = app->now_us + NEWS_US;
	return *what != '\0';
}

void app_log_end(struct app *app)
{
	char text[KVR_LOG_LINE] = "";
	size_t n = 0;

	for (unsigned int i = 0; i < APP_N && n < sizeof(text); i++) {
		const uint64_t v = kvr_stats_get((const kvr_cell_t *)&app->st, i);

		if (v != 0)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s %" PRIu64,
					      n != 0 ? ", " : "", counters[i].name, v);
	}
	app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .reason = "signal"), "stopped: %s",
		n != 0 ? text : "no activity");
}

void app_print_stats(struct app *app)
{
	struct kvr_agent_stats s;
	char prefix[32];

	print_counters(&app_stats_def, (const kvr_cell_t *)&app->st, "agent: ");
	if (app->agent != NULL) {
		kvr_agent_stats_get(app->agent, &s);
		fprintf(stderr,
			"router: frames %" PRIu64 " sent, %" PRIu64 " unsent, %" PRIu64
			" received, %" PRIu64 " bad; items %" PRIu64 ", %" PRIu64
			" retransmitted; KV events %" PRIu64 ", %" PRIu64 " gaps, %" PRIu64
			" dumps\n",
			s.frames_sent, s.frames_unsent, s.frames_received, s.frames_bad, s.items,
			s.items_resent, s.kv_events, s.kv_gaps, s.kv_dumps);
	}
	for (uint32_t i = 0; app->streams != NULL && i < app->o.ranks; i++) {
		snprintf(prefix, sizeof(prefix), "rank %u: ", app->o.first_rank + i);
		print_counters(&kvr_kvmap_stats,
			       (const kvr_cell_t *)kvr_kvmap_stats_get(app->streams[i]->map),
			       prefix);
	}
	fflush(stderr);
}
