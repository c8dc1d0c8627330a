/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_DOCTOR_H
#define CTL_DOCTOR_H

/**
 * @file
 * Findings about a router, from two samples (sample.h) some seconds apart. rules.c has one row per
 * rule: the objects that it is applied to, the condition, the remedy. Pure: no clock, no socket.
 *
 * Any two samples show a fault that lasts. A fault that is an event (a gap, a rejection) shows only
 * in samples before and after the event. The exporter keeps its findings for a minute.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Objects that a rule is applied to: one call per object. */
enum doctor_scope {
	DOCTOR_ROUTER,
	DOCTOR_POOL,
	DOCTOR_WORKER,
	DOCTOR_RANK, /* of "loads"; in->pool names the pool */
	DOCTOR_LCORE,
	DOCTOR_PORT,
	DOCTOR_BUFFER,
	DOCTOR_THREAD,
	DOCTOR_REFUSED,
	DOCTOR_XDP, /* ports with an XDP program */
	DOCTOR_SCOPES
};

struct doctor_input {
	const json_t *was, *is; /* the first and the second sample */
	double seconds;		/* between them */
	double patience_s;	/* time without progress that is not a finding yet */
	const char *name;	/* of the pool, worker, ... */
	const char *pool;	/* of a rank */
	/* The object in each sample; `before` is NULL when the first sample lacks it. */
	const json_t *before, *now;
	char *cause; /* buffer for the sentence */
	size_t len;
};

struct doctor_rule {
	const char *name;  /* "kv-event-gap": a noun phrase, used in metrics and alerts */
	const char *reads; /* telemetry answers that the rule reads, for the documentation */
	/** @return true if the finding applies; in->cause then has the cause in one sentence. */
	bool (*is)(const struct doctor_input *in);
	const char *remedy; /* imperative, with a full stop; names a command, key or option */
	enum doctor_scope scope;
};

extern const struct doctor_rule doctor_rules[]; /* ends with name NULL */

/**
 * Apply all rules.
 * @param patience_s seconds that a drain or a request may make no progress.
 * @return an array of {"rule", "where", "cause", "remedy"}, in the order of the table; the caller
 * releases it with json_decref().
 */
json_t *doctor_find(const json_t *was, const json_t *is, double patience_s);

/* ---- for rules ---- */

/** @return number @p name of the object in the second sample, or 0. "a.b": member b of member a. */
double doctor_get_number(const struct doctor_input *in, const char *name);

/** @return the growth of number @p name between the samples; 0 if it did not grow, or if the first
 * sample lacks it. */
double doctor_get_growth(const struct doctor_input *in, const char *name);

/** @return @p one if @p n is printed as 1 with %.0f, else @p many. */
const char *doctor_pick_word(double n, const char *one, const char *many);

/** Write the sentence. @return true. */
bool doctor_report(const struct doctor_input *in, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
