/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of /health and reads of /metrics, one of each at a time. */
#include "engine.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void begin_probe(struct app *a, struct app_probe *p)
{
	agent_hang_probed(&a->hang, a->now_us);
	p->kind = APP_PROBE;
	if (p->easy == NULL)
		p->easy = curl_easy_init();
	if (p->easy == NULL)
		return;
	app_http_get(a, p->easy, p->path, &p->page, &p->kind, APP_PROBE_MS);
	p->busy = curl_multi_add_handle(a->multi, p->easy) == CURLM_OK;
}

static bool is_probing(const struct app *a)
{
	return a->state == APP_WAITING || a->state == APP_SERVING || a->state == APP_DRAINING;
}

void app_probe_turn(struct app *a)
{
	if (!is_probing(a))
		return;
	if (!a->health.busy && a->now_us >= a->health.due_us)
		begin_probe(a, &a->health);
	if (!a->metrics.busy && a->now_us >= a->metrics.due_us && a->state != APP_WAITING)
		begin_probe(a, &a->metrics);
}

void app_probe_metrics(struct app *a)
{
	if (!a->metrics.busy)
		begin_probe(a, &a->metrics);
}

uint64_t app_probe_due_us(const struct app *a)
{
	uint64_t due = !is_probing(a) || a->health.busy ? UINT64_MAX : a->health.due_us;

	if (is_probing(a) && !a->metrics.busy && a->state != APP_WAITING && a->metrics.due_us < due)
		due = a->metrics.due_us;
	return due;
}

static void abandon_probe(struct app *a, struct app_probe *p)
{
	if (p->busy)
		curl_multi_remove_handle(a->multi, p->easy);
	p->busy = false;
}

void app_probe_forget(struct app *a)
{
	abandon_probe(a, &a->health);
	abandon_probe(a, &a->metrics);
	app_describe_forget(a);
	agent_prom_read(&a->prom, "", 0);
}

/* Describe a failed answer; "": success. */
static void describe_failure(const struct app *a, const struct app_probe *p, CURLcode result,
			     char *why, size_t len)
{
	long status = 0;

	curl_easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status);
	if (result != CURLE_OK)
		app_curl_error(a, p->easy, result, why, len);
	else if (status != 200)
		snprintf(why, len, "status %ld", status);
	else
		why[0] = '\0';
}

/* Handle the result of /health. A refused connection (@p there false) counts as three failures. */
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
			"waiting for the engine; checking /health every %u ms", a->o.health_ms);
	if (a->state == APP_SERVING && (a->health_failures >= 3 || !there))
		app_worker_withdraw(a, why);
}

static void metrics_ended(struct app *a, const char *why)
{
	a->metrics.due_us = a->now_us + a->o.load_ms * UINT64_C(1000);
	if (*why == '\0')
		agent_prom_read(&a->prom, a->metrics.page.p, a->metrics.page.len);
	if (*why == '\0' && a->prom.samples == 0)
		why = "no metric of vLLM or SGLang";
	if (app_is_news(a, &a->metrics.news, why))
		app_log(a,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = a->o.engine, .reason = why),
			"/metrics has no load; reporting the agent's own counts");
	if (*why != '\0') {
		kvr_cell_add(&a->st.metrics_failed, 1);
		memset(a->prom.rank, 0, sizeof(a->prom.rank));
	}
	if (a->state == APP_WAITING)
		app_worker_register(a);
	else if (a->agent != NULL)
		app_load_report(a);
}

/* Get the address of a closed connection from curl. @return 0: unknown. */
static socklen_t get_address(CURL *easy, struct sockaddr_storage *at)
{
	struct sockaddr_in6 *v6 = (void *)at;
	struct sockaddr_in *v4 = (void *)at;
	const char *ip = NULL;
	long port = 0;

	curl_easy_getinfo(easy, CURLINFO_PRIMARY_IP, &ip);
	curl_easy_getinfo(easy, CURLINFO_PRIMARY_PORT, &port);
	*at = (struct sockaddr_storage){0};
	v4->sin_port = htons((uint16_t)port); /* at the same offset for IPv4 and IPv6 */
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

/* Learn the address that answered; a name may resolve differently later. */
static void learn_address(struct app *a, CURL *easy)
{
	struct sockaddr_storage at = {0};
	curl_socket_t fd = CURL_SOCKET_BAD;
	socklen_t len = sizeof(at);

	curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &fd);
	if (fd == CURL_SOCKET_BAD || getpeername(fd, (struct sockaddr *)&at, &len) < 0)
		len = get_address(easy, &at);
	if (len > 0)
		app_engine_set_address(a, (const struct sockaddr *)&at, len);
}

void app_probe_ended(struct app *a, struct app_probe *p, CURLcode result)
{
	const bool there = !app_http_refused(p->easy, result);
	long status = 0;
	char why[96];

	curl_easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status != 0)
		agent_hang_received(&a->hang, a->now_us);
	describe_failure(a, p, result, why, sizeof(why));
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
