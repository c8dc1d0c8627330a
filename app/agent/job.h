/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_JOB_H
#define AGENT_JOB_H

/**
 * @file
 * One request at the engine: request.c starts it, answer.c takes what the connection brings, jobs.c
 * hands that on to the router and ends it.
 */

#include "bodies.h"
#include "engine.h"
#include "kvr_http.h"
#include "kvr_sse.h"
#include "usage.h"

struct app_job {
	LIST_ENTRY(app_job) hash;
	TAILQ_ENTRY(app_job) queue;
	struct app_jobs *in; /* the queue it is in, or NULL */
	TAILQ_ENTRY(app_job) trial;
	uint64_t trial_us; /* it is given up then, unless something has come; 0: not on trial */
	struct app *app;
	uint64_t handle;
	uint32_t rank;	       /* index */
	struct app_ask ask;    /* of the engine */
	struct app_body *body; /* it is waited for, or has been; or NULL */
	/* the answer */
	uint64_t head_us; /* when its head came */
	uint16_t status;
	bool stream, prefill, bootstrap;
	bool over, failed;
	bool retry_after; /* its head has the field */
	bool content;	  /* something has come behind the head */
	bool begun;	  /* an event that is no error has been handed on */
	char link[40];	  /* to its trace, a JSON object; "": none */
	char words[256];  /* why it has failed; "": nothing is known */
	char *out;	  /* not handed on yet */
	size_t len, cap;
	bool too_long; /* for `whole`, which stays empty */
	char *whole;   /* its content, when it is no stream */
	size_t whole_len, whole_cap;
	struct kvr_sse sse;
	char *sse_buf;
	struct agent_usage usage;
};

/* jobs.c */
struct app_bucket *app_job_bucket(struct app *a, uint64_t handle);
/** It has failed, with a reason for people: the first one counts. */
void app_job_say(struct app_job *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Its data is handed on at the end of the turn. */
void app_job_dirty(struct app_job *j);
/** It has a head: handed on with what follows, or when nothing has in a millisecond. */
void app_job_headed(struct app_job *j);
/** Free it, and stop the engine if it still runs. */
void app_job_release(struct app_job *j);

/* request.c: what happens to a body that does not come in frames */
extern const struct app_bodies_ops app_job_bodies;

/** Its rank is probed: it has less time than others, mostly. */
void app_job_try(struct app_job *j);

/** Of its request at the engine. */
void app_job_ended(void *job, enum app_end how, const char *why);

/* answer.c: of struct app_ask_ops */
bool app_job_takes(void *job);
int app_job_on_head(void *job, const struct kvr_http_head *h);
int app_job_on_content(void *job, const char *data, size_t len);

#endif
