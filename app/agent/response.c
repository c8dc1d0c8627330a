/* SPDX-License-Identifier: BSD-3-Clause */
/* Response of the engine: converts its head, collects its content, and extracts token counts. */
#include "job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define OUT_MOST 65536u /* bytes not forwarded yet; beyond it reading stops */
#define WHOLE_MOST                                                                                 \
	(4u << 20)	   /* limit for answers parsed at their end: usage, or transfer result     \
			    */
#define EVENT_USUAL 16384u /* buffer for one event of a stream ... */
#define EVENT_MOST                                                                                 \
	(1u << 20) /* ... and its limit: an event may contain a whole answer with its request */

static bool append_bytes(char **buf, size_t *len, size_t *cap, const void *data, size_t n)
{
	if (*len + n > *cap) {
		const size_t size = 2 * (*len + n);
		char *larger = realloc(*buf, size);

		if (larger == NULL)
			return false;
		*buf = larger;
		*cap = size;
	}
	memcpy(*buf + *len, data, n);
	*len += n;
	return true;
}

static bool is_events(const struct kvr_http_field *f)
{
	return kvr_http_equals(f->name, "content-type") && f->value.len >= 17 &&
	       strncasecmp(f->value.p, "text/event-stream", 17) == 0;
}

static char *larger_event(void *arg, uint32_t *size)
{
	struct app_job *job = arg;
	const uint32_t room = *size < EVENT_MOST / 2 ? 2 * *size : EVENT_MOST;
	char *larger = *size <= EVENT_MOST ? realloc(job->sse_buf, room) : NULL;

	if (larger == NULL)
		return NULL;
	job->sse_buf = larger;
	*size = room;
	return larger;
}

int app_job_on_head(void *arg, const struct kvr_http_head *h)
{
	struct app_job *job = arg;
	char head[KVR_HTTP_MAX_HEAD];
	struct kvr_http_put put;
	int n;

	job->status = h->status;
	kvr_http_put_response(&put, head, sizeof(head), h->status);
	for (unsigned int i = 0; i < h->n_fields; i++) {
		const struct kvr_http_field *f = &h->fields[i];

		job->stream |= is_events(f);
		job->retry_after |= kvr_http_equals(f->name, "retry-after");
		if (!kvr_http_is_hop(f->name.p, f->name.len))
			kvr_http_put_field(&put, f->name.p, f->name.len, f->value.p, f->value.len);
	}
	n = kvr_http_put_end(&put);
	if (n < 0)
		return -ECANCELED;
	if (!append_bytes(&job->out, &job->len, &job->cap, head, (size_t)n))
		return -ENOMEM;
	if (job->stream) {
		job->sse_buf = malloc(EVENT_USUAL);
		kvr_sse_init(&job->sse, job->sse_buf, job->sse_buf != NULL ? EVENT_USUAL : 0);
		kvr_sse_grows(&job->sse, larger_event, job);
	}
	if (!job->prefill)
		app_job_hold_head(job);
	return 0;
}

static void on_event(void *arg, const char *data, uint32_t len, bool cut)
{
	struct app_job *job = arg;

	if (cut)
		job->usage.bad_events++;
	else
		agent_usage_event(&job->usage, data, len);
}

/*
 * Collect content that is parsed at its end: usage, or the transfer result of a prefill. An answer
 * above the limit is not parsed, because a part of it could be misread.
 */
static int add_whole(struct app_job *job, const char *data, size_t n)
{
	if (!job->too_long && job->whole_len + n <= WHOLE_MOST)
		return append_bytes(&job->whole, &job->whole_len, &job->whole_cap, data, n)
			       ? 0
			       : -ENOMEM;
	job->too_long = true;
	job->whole_len = 0;
	return job->prefill ? -EOVERFLOW : 0;
}

bool app_job_accepts(void *arg)
{
	const struct app_job *job = arg;

	return job->prefill || job->len <= OUT_MOST;
}

int app_job_on_content(void *arg, const char *data, size_t len)
{
	struct app_job *job = arg;
	int rc = 0;

	if (job->stream)
		kvr_sse_add(&job->sse, data, len, on_event, job);
	else
		rc = add_whole(job, data, len);
	job->content |= len > 0;
	if (rc < 0 || job->prefill)
		return rc;
	if (!append_bytes(&job->out, &job->len, &job->cap, data, len))
		return -ENOMEM;
	app_job_mark_dirty(job);
	return 0;
}
