/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks at /health and /metrics, one of each at a time. */
#include "engine.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void begin(struct app *a, struct app_probe *p)
{
	agent_quiet_asked(&a->quiet, a->now_us);
	p->kind = APP_PROBE;
	if (p->easy == NULL)
		p->easy = curl_easy_init();
	if (p->easy == NULL)
		return;
	app_page_get(a, p->easy, p->path, &p->page, &p->kind, APP_LOOK_MS);
	p->busy = curl_multi_add_handle(a->multi, p->easy) == CURLM_OK;
}

static bool looks(const struct app *a)
{
	return a->state == APP_WAITING || a->state == APP_SERVING || a->state == APP_DRAINING;
}

void app_probe_turn(struct app *a)
{
	if (!looks(a))
		return;
	if (!a->health.busy && a->now_us >= a->health.due_us)
		begin(a, &a->health);
	if (!a->metrics.busy && a->now_us >= a->metrics.due_us && a->state != APP_WAITING)
		begin(a, &a->metrics);
}

void app_probe_metrics(struct app *a)
{
	if (!a->metrics.busy)
		begin(a, &a->metrics);
}

uint64_t app_probe_due_us(const struct app *a)
{
	uint64_t due = !looks(a) || a->health.busy ? UINT64_MAX : a->health.due_us;

	if (looks(a) && !a->metrics.busy && a->state != APP_WAITING && a->metrics.due_us < due)
		due = a->metrics.due_us;
	return due;
}

static void forget(struct app *a, struct app_probe *p)
{
	if (p->busy)
		curl_multi_remove_handle(a->multi, p->easy);
	p->busy = false;
}

void app_probe_forget(struct app *a)
{
	forget(a, &a->health);
	forget(a, &a->metrics);
	app_describe_forget(a);
	agent_prom_read(&a->prom, "", 0);
}

/* What is wrong with the answer; "": nothing. */
static void judge(const struct app *a, const struct app_probe *p, CURLcode result, char *why,
		  size_t len)
{
	long status = 0;

	curl_easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status);
	if (result != CURLE_OK)
		app_http_why(a, p->easy, result, why, len);
	else if (status != 200)
		snprintf(why, len, "status %ld", status);
	else
		why[0] = '\0';
}

/* Who refuses the connection is not there: nobody waits for a second and a third look. */
static void health_ended(struct app *a, const char *why, bool there)
{
	const bool news = app_is_news(a, &a->health.news, why);

	a->health.due_us = a->now_us + a->o.health_ms * UINT64_C(1000);
	if (*why == '\0') {
		a->health_failures = 0;
		if (a->state == APP_WAITING && !a->metrics.busy && !a->describe.busy)
			app_describe_begin(a);
		return;
	}
	kvr_cell_add(&a->st.health_failed, 1);
	a->health_failures++;
	if (a->state == APP_WAITING && news)
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .addr = a->o.engine, .reason = why),
			"waiting for the engine: /health is asked every %u ms", a->o.health_ms);
	if (a->state == APP_SERVING && (a->health_failures >= 3 || !there))
		app_engine_lost(a, why);
}

static void metrics_ended(struct app *a, const char *why)
{
	a->metrics.due_us = a->now_us + a->o.load_ms * UINT64_C(1000);
	if (*why == '\0')
		agent_prom_read(&a->prom, a->metrics.page.p, a->metrics.page.len);
	if (*why == '\0' && a->prom.samples == 0)
		why = "no metric of vLLM's or SGLang's";
	if (app_is_news(a, &a->metrics.news, why))
		app_log(a,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = a->o.engine, .reason = why),
			"/metrics says nothing about load: own counts are reported");
	if (*why != '\0') {
		kvr_cell_add(&a->st.metrics_failed, 1);
		memset(a->prom.rank, 0, sizeof(a->prom.rank));
	}
	if (a->state == APP_WAITING)
		app_engine_fine(a);
	else if (a->agent != NULL)
		app_load_known(a);
}

/* Of a connection that is closed already only this is known. @return 0: none. */
static socklen_t told_address(CURL *easy, struct sockaddr_storage *at)
{
	struct sockaddr_in6 *v6 = (void *)at;
	struct sockaddr_in *v4 = (void *)at;
	const char *ip = NULL;
	long port = 0;

	curl_easy_getinfo(easy, CURLINFO_PRIMARY_IP, &ip);
	curl_easy_getinfo(easy, CURLINFO_PRIMARY_PORT, &port);
	*at = (struct sockaddr_storage){0};
	v4->sin_port = htons((uint16_t)port); /* in both at the same place */
	if (ip != NULL && inet_pton(AF_INET, ip, &v4->sin_addr) == 1) {
		at->ss_family = AF_INET;
		return sizeof(*v4);
	}
	if (ip != NULL && inet_pton(AF_INET6, ip, &v6->sin6_addr) == 1) {
		at->ss_family = AF_INET6;
		return sizeof(*v6);
	}
	return 0;
}

/* The address that has answered; a name may lead elsewhere some day. */
static void learn_address(struct app *a, CURL *easy)
{
	struct sockaddr_storage at = {0};
	curl_socket_t fd = CURL_SOCKET_BAD;
	socklen_t len = sizeof(at);

	curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &fd);
	if (fd == CURL_SOCKET_BAD || getpeername(fd, (struct sockaddr *)&at, &len) < 0)
		len = told_address(easy, &at);
	if (len > 0)
		app_engine_at(a, (const struct sockaddr *)&at, len);
}

void app_probe_ended(struct app *a, struct app_probe *p, CURLcode result)
{
	const bool there = !app_http_refused(p->easy, result);
	long status = 0;
	char why[96];

	curl_easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status != 0)
		agent_quiet_heard(&a->quiet, a->now_us);
	judge(a, p, result, why, sizeof(why));
	if (why[0] == '\0')
		learn_address(a, p->easy);
	curl_multi_remove_handle(a->multi, p->easy);
	p->busy = false;
	if (p == &a->health)
		health_ended(a, why, there);
	else
		metrics_ended(a, why);
}

void app_probe_fini(struct app_probe *p)
{
	if (p->easy != NULL)
		curl_easy_cleanup(p->easy);
	free(p->page.p);
}
