/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_JOB_H
#define AGENT_JOB_H

/**
 * @file
 * One request at the engine: request.c starts it, answer.c takes what curl brings, jobs.c hands
 * that on to the router and ends it.
 */

#include "bodies.h"
#include "kvr_http.h"
#include "kvr_sse.h"
#include "usage.h"

struct app_job {
	enum app_transfer kind;
	LIST_ENTRY(app_job) hash;
	TAILQ_ENTRY(app_job) queue;
	struct app *app;
	uint64_t handle;
	uint32_t rank; /* index */
	CURL *easy;    /* NULL: the transfer is over */
	struct curl_slist *fields;
	char *content;	       /* of the request */
	struct app_body *body; /* it is waited for, or has been; or NULL */
	/* the answer */
	uint16_t status;
	bool queued, is_blocked, paused, head_done, stream, prefill, bootstrap;
	bool over, failed, bad_head;
	char words[256];	 /* why it has failed; "": nothing is known */
	struct kvr_http_put put; /* of its head */
	char *head;
	char *out; /* not handed on yet */
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
/** Free it, and stop the engine if it still runs. */
void app_job_release(struct app_job *j);

/* request.c: what happens to a body that does not come in frames */
extern const struct app_bodies_ops app_job_bodies;

/* answer.c: callbacks of curl, for a job */
size_t app_job_on_header(char *data, size_t size, size_t count, void *user);
size_t app_job_on_content(char *data, size_t size, size_t count, void *user);

#endif
