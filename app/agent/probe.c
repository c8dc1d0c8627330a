/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of /health and reads of /metrics, one of each at a time. */
#include "engine.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void begin_probe(struct app *app, struct app_probe *probe)
{
	agent_hang_probed(&app->hang, app->now_us);
	probe->kind = APP_PROBE;
	if (probe->easy == NULL)
		probe->easy = curl_easy_init();
	if (probe->easy == NULL)
		return;
	app_http_get(app, probe->easy, probe->path, &probe->page, &probe->kind, APP_PROBE_MS);
	probe->busy = curl_multi_add_handle(app->multi, probe->easy) == CURLM_OK;
}

static bool is_probing(const struct app *app)
{
	return app->state == APP_WAITING || app->state == APP_SERVING || app->state == APP_DRAINING;
}

void app_probe_turn(struct app *app)
{
	if (!is_probing(app))
		return;
	if (!app->health.busy && app->now_us >= app->health.due_us)
		begin_probe(app, &app->health);
	if (!app->metrics.busy && app->now_us >= app->metrics.due_us && app->state != APP_WAITING)
		begin_probe(app, &app->metrics);
}

void app_probe_metrics(struct app *app)
{
	if (!app->metrics.busy)
		begin_probe(app, &app->metrics);
}

uint64_t app_probe_due_us(const struct app *app)
{
	uint64_t due = !is_probing(app) || app->health.busy ? UINT64_MAX : app->health.due_us;

	if (is_probing(app) && !app->metrics.busy && app->state != APP_WAITING &&
	    app->metrics.due_us < due)
		due = app->metrics.due_us;
	return due;
}

static void abandon_probe(struct app *app, struct app_probe *probe)
{
	if (probe->busy)
		curl_multi_remove_handle(app->multi, probe->easy);
	probe->busy = false;
}

void app_probe_forget(struct app *app)
{
	abandon_probe(app, &app->health);
	abandon_probe(app, &app->metrics);
	app_describe_forget(app);
	agent_prom_read(&app->prom, "", 0);
}

/* Describe a failed answer; "": success. */
static void describe_failure(const struct app *app, const struct app_probe *probe, CURLcode result,
			     char *why, size_t len)
{
	long status = 0;

	curl_easy_getinfo(probe->easy, CURLINFO_RESPONSE_CODE, &status);
	if (result != CURLE_OK)
		app_curl_error(app, probe->easy, result, why, len);
	else if (status != 200)
		snprintf(why, len, "status %ld", status);
	else
		why[0] = '\0';
}

/* Handle the result of /health. A refused connection (@p there false) counts as three failures. */
static void health_ended(struct app *app, const char *why, bool there)
{
	const bool news = app_is_news(app, &app->health.news, why);

	app->health.due_us = app->now_us + app->o.health_ms * UINT64_C(1000);
	if (*why == '\0') {
		app->health_failures = 0;
		if (app->state == APP_WAITING && !app->metrics.busy && !app->describe.busy)
			app_describe_begin(app);
		return;
	}
	kvr_cell_add(&app->st.health_failed, 1);
	app->health_failures++;
	if (app->state == APP_WAITING && news)
		app_log(app,
			KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .addr = app->o.engine, .reason = why),
			"waiting for the engine; checking /health every %u ms", app->o.health_ms);
	if (app->state == APP_SERVING && (app->health_failures >= 3 || !there))
		app_worker_withdraw(app, why);
}

static void metrics_ended(struct app *app, const char *why)
{
	app->metrics.due_us = app->now_us + app->o.load_ms * UINT64_C(1000);
	if (*why == '\0')
		agent_prom_read(&app->prom, app->metrics.page.p, app->metrics.page.len);
	if (*why == '\0' && app->prom.samples == 0)
		why = "no metric of vLLM or SGLang";
	if (app_is_news(app, &app->metrics.news, why))
		app_log(app,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = app->o.engine, .reason = why),
			"/metrics has no load; reporting the agent's own counts");
	if (*why != '\0') {
		kvr_cell_add(&app->st.metrics_failed, 1);
		memset(app->prom.rank, 0, sizeof(app->prom.rank));
	}
	if (app->state == APP_WAITING)
		app_worker_register(app);
	else if (app->agent != NULL)
		app_load_report(app);
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
static void learn_address(struct app *app, CURL *easy)
{
	struct sockaddr_storage at = {0};
	curl_socket_t fd = CURL_SOCKET_BAD;
	socklen_t len = sizeof(at);

	curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &fd);
	if (fd == CURL_SOCKET_BAD || getpeername(fd, (struct sockaddr *)&at, &len) < 0)
		len = get_address(easy, &at);
	if (len > 0)
		app_engine_set_address(app, (const struct sockaddr *)&at, len);
}

void app_probe_ended(struct app *app, struct app_probe *probe, CURLcode result)
{
	const bool there = !app_http_refused(probe->easy, result);
	long status = 0;
	char why[96];

	curl_easy_getinfo(probe->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status != 0)
		agent_hang_received(&app->hang, app->now_us);
	describe_failure(app, probe, result, why, sizeof(why));
	if (why[0] == '\0')
		learn_address(app, probe->easy);
	curl_multi_remove_handle(app->multi, probe->easy);
	probe->busy = false;
	if (probe == &app->health)
		health_ended(app, why, there);
	else
		metrics_ended(app, why);
}

void app_probe_fini(struct app_probe *probe)
{
	if (probe->easy != NULL)
		curl_easy_cleanup(probe->easy);
	free(probe->page.p);
}
