/* SPDX-License-Identifier: BSD-3-Clause */
/* A dispatched request becomes one of HTTP. */
#include "job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "body.h"
#include "pack.h"

static bool add_text(struct app_job *j, const char *text)
{
	struct curl_slist *l = curl_slist_append(j->fields, text);

	if (l != NULL)
		j->fields = l;
	return l != NULL;
}

/* The fields of the message, and the rank. */
static bool set_fields(struct app_job *j, const struct kvr_http_head *head, uint32_t dp_rank)
{
	const struct agent_options *o = &j->app->o;
	char line[KVR_HTTP_MAX_HEAD];
	bool accept = false;

	for (unsigned int i = 0; i < head->n_fields; i++) {
		const struct kvr_http_field *f = &head->fields[i];

		if (kvr_http_equals(f->name, "x-data-parallel-rank"))
			continue;
		accept |= kvr_http_equals(f->name, "accept");
		/* curl leaves out a field without value, but for one that ends like this. */
		snprintf(line, sizeof(line), f->value.len > 0 ? "%.*s: %.*s" : "%.*s;%.*s",
			 (int)f->name.len, f->name.p, (int)f->value.len, f->value.p);
		if (!add_text(j, line))
			return false;
	}
	if (o->ranks > 1 || o->first_rank > 0) {
		snprintf(line, sizeof(line), "X-data-parallel-rank: %u",
			 o->local_ranks ? dp_rank - o->first_rank : dp_rank);
		if (!add_text(j, line))
			return false;
	}
	return (accept || add_text(j, "Accept:")) && add_text(j, "Expect:");
}

/* The content: the client's, or what the leg makes of it. @return length or -errno. */
static int64_t set_content(struct app_job *j, const struct kvr_agent_request *r, const char *p,
			   size_t len)
{
	struct agent_leg leg = {.leg = r->leg,
				.bootstrap_host = r->bootstrap_host,
				.bootstrap_port = r->bootstrap_port,
				.bootstrap_room = r->bootstrap_room,
				.prefill_ranks = j->app->o.prefill_ranks,
				.result = r->prefill_result,
				.result_len = r->prefill_result_len};

	if (r->leg != KVR_ROLE_AGGREGATED) {
		char *result;
		int64_t n = agent_result_unpack(leg.result, leg.result_len, &result);

		if (n < 0)
			return n;
		if (n > 0) {
			leg.result = result;
			leg.result_len = (uint32_t)n;
		}
		n = agent_body_leg((enum agent_engine)j->app->o.type, &leg, p, len, &j->content);
		free(result);
		return n;
	}
	j->content = malloc(len + 1);
	if (j->content == NULL)
		return -ENOMEM;
	memcpy(j->content, p, len);
	return (int64_t)len;
}

static int start(struct app_job *j, const struct kvr_http_head *head, int64_t content_len)
{
	const struct agent_options *o = &j->app->o;
	char url[512 + KVR_HTTP_MAX_HEAD], method[32];
	CURL *e = curl_easy_init();

	if (e == NULL)
		return -ENOMEM;
	j->easy = e;
	snprintf(url, sizeof(url), "%s%.*s", o->engine, (int)head->target.len, head->target.p);
	snprintf(method, sizeof(method), "%.*s", (int)head->method.len, head->method.p);
	curl_easy_setopt(e, CURLOPT_URL, url);
	curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http");
	curl_easy_setopt(e, CURLOPT_PROXY, "");
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	if (content_len > 0 || strcmp(method, "POST") == 0) {
		curl_easy_setopt(e, CURLOPT_POST, 1L);
		curl_easy_setopt(e, CURLOPT_POSTFIELDS, j->content);
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)content_len);
	}
	if (strcmp(method, "HEAD") == 0) /* no content follows, whatever the head says */
		curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
	curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(e, CURLOPT_HTTPHEADER, j->fields);
	curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, app_job_on_header);
	curl_easy_setopt(e, CURLOPT_HEADERDATA, j);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, app_job_on_content);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, j);
	curl_easy_setopt(e, CURLOPT_PRIVATE, (char *)j);
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)o->connect_ms);
	curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)o->timeout_s * 1000);
	return curl_multi_add_handle(j->app->multi, e) == CURLM_OK ? 0 : -ENOMEM;
}

static int refuse(struct app *a, int code, const char *why)
{
	kvr_cell_add(&a->st.refused, 1);
	app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR), "a request is refused with %d: %s", code,
		why);
	return code;
}

/* The message is there: to the engine. @return 0, or the code of a refusal, with @p why. */
static int run(struct app_job *j, const struct kvr_agent_request *r, const char *message,
	       size_t len, const char **why)
{
	struct kvr_http_head head;
	int64_t n;

	*why = "its body is no HTTP request message";
	if (kvr_http_parse_request(message, len, &head) < 0 || head.target.p[0] != '/')
		return 400;
	n = set_content(j, r, message + head.len, len - head.len);
	*why = n == -EBADMSG ? "its content is no JSON object"
	       : n == -ENOMEM
		       ? "no memory"
		       : "the other leg's engine is of another kind: no room to meet in, or no "
			 "transfer result";
	if (n < 0)
		return n == -EBADMSG ? 400 : n == -ENOMEM ? 503 : 422;
	*why = "no memory";
	if (!set_fields(j, &head, r->dp_rank) || start(j, &head, n) < 0)
		return 503;
	kvr_cell_add(&j->app->st.requests, 1);
	return 0;
}

static void fail(struct app_job *j, uint16_t status, const char *why)
{
	app_job_say(j, "%s", why);
	j->over = true;
	j->status = status;
	app_job_dirty(j);
}

static void come(struct app_job *j, const char *message, size_t len)
{
	const char *why;
	const int code = run(j, app_body_request(j->body), message, len, &why);

	if (code == 0)
		return;
	app_log(j->app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
		"a request with a body of its own fails with %d: %s", code, why);
	fail(j, (uint16_t)code, why);
}

const struct app_bodies_ops app_job_bodies = {.come = come, .missed = fail};

int app_job_dispatch(struct app *a, const struct kvr_agent_request *r)
{
	const char *why = "no memory";
	struct app_job *j;
	int code = 0;

	if (a->state != APP_SERVING && a->state != APP_DRAINING)
		return refuse(a, 503, "the agent is leaving");
	j = calloc(1, sizeof(*j));
	if (j == NULL)
		return refuse(a, 503, why);
	j->app = a;
	j->handle = r->handle;
	j->rank = r->dp_rank - a->o.first_rank;
	j->prefill = r->leg == KVR_ROLE_PREFILL;
	j->bootstrap = r->bootstrap_host != NULL;
	LIST_INSERT_HEAD(app_job_bucket(a, j->handle), j, hash);
	a->live[j->rank]++;
	kvr_cell_add(&a->st.running, 1);
	if (!r->away) {
		code = run(j, r, r->body, r->body_len, &why);
	} else {
		j->body = app_body_expect(a, j, r);
		code = j->body != NULL ? 0 : 503;
	}
	if (code == 0)
		return 0;
	app_job_release(j);
	return refuse(a, code, why);
}
