/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CTL_DOCTOR_H
#define CTL_DOCTOR_H

/**
 * @file
 * What is wrong with a router, from two looks at it (snap.h), the second some seconds after the
 * first. One row of a table for each fault (rules.c): what it looks at, when it is one, the
 * sentence and the remedy. Pure: no clock, no socket.
 *
 * A fault that lasts is found by any two looks; one that is an event (a gap, a refusal) by two
 * looks with the event between them. doctor takes them some seconds apart, the exporter keeps what
 * it has found for a minute.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What a rule is asked about, one call for each there is. */
enum doctor_scope {
	DOCTOR_ROUTER,
	DOCTOR_POOL,
	DOCTOR_WORKER,
	DOCTOR_RANK, /* of "loads"; l->pool names the pool */
	DOCTOR_LCORE,
	DOCTOR_PORT,
	DOCTOR_BUFFER,
	DOCTOR_THREAD,
	DOCTOR_REFUSED,
	DOCTOR_XDP, /* ports with an XDP program */
	DOCTOR_SCOPES
};

struct doctor_look {
	const json_t *was, *is; /* the looks */
	double seconds;		/* between them */
	double patience_s;	/* what stands still for longer is named */
	const char *name;	/* of the pool, worker, ... */
	const char *pool;	/* of a rank */
	/* Its objects in the looks: of pools in "pools", ...; `before` NULL: it was not there. */
	const json_t *before, *now;
	char *says; /* the sentence goes here */
	size_t len;
};

struct doctor_rule {
	const char *name;  /* "event-gap": in metrics and alerts */
	const char *reads; /* which answers, for the documentation */
	/** Whether it is so; the sentence is in l->says then. */
	bool (*is)(const struct doctor_look *l);
	const char *remedy; /* one sentence, imperative */
	enum doctor_scope scope;
};

extern const struct doctor_rule doctor_rules[]; /* ends with name NULL */

/**
 * Everything that is wrong.
 * @param patience_s a drain or a request may stand still for so long.
 * @return an array of {"rule", "where", "says", "remedy"}, in the order of the table; to be given
 * back by json_decref().
 */
json_t *doctor_findings(const json_t *was, const json_t *is, double patience_s);

/* ---- for rules ---- */

/** Number @p name of the object, now; 0 when there is none. "a.b": in a part of it. */
double doctor_now(const struct doctor_look *l, const char *name);

/** How much it has grown between the looks; 0 when it has not, or was not there before. */
double doctor_grown(const struct doctor_look *l, const char *name);

/** @return @p one or @p many, as @p n things, printed with %.0f, ask for. */
const char *doctor_word(double n, const char *one, const char *many);

/** Write the sentence. @return true. */
bool doctor_say(const struct doctor_look *l, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
