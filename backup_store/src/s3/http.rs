//! How requests to S3 are sent: HTTP over TLS, whose authorities are those of the machine.
//!
//! An endpoint with `http://` is asked without TLS.

use std::error::Error;
use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Connector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, RootCertStore};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence after which a connection that is not used is closed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// The time that a request may take to the head of its answer, and the bytes of its body for each further second.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const SLOWEST_BYTES_PER_SECOND: u64 = 64 << 10;

/// Makes clients.
#[derive(Debug)]
pub struct HyperConnector;

impl HttpConnector for HyperConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allows_http =
            options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        let failed = |error: &dyn Error| object_store::Error::Generic {
            store: "S3",
            source: format!("TLS cannot be used: {}", text(error)).into(),
        };
        let builder = HttpsConnectorBuilder::new();
        let builder = match builder.with_provider_and_native_roots(default_provider()) {
            Ok(builder) => builder,
            // A machine without authorities can do without TLS.
            Err(_) if allows_http => {
                let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
                let config = config.with_safe_default_protocol_versions().map_err(|error| failed(&error))?;
                let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
                HttpsConnectorBuilder::new().with_tls_config(config)
            }
            Err(error) => return Err(failed(&error)),
        };
        let mut tcp = Connector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_nodelay(true);
        let builder = if allows_http { builder.https_or_http() } else { builder.https_only() };
        let connector = builder.enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(HttpClient::new(HyperClient(client)))
    }
}

#[derive(Debug)]
struct HyperClient(Client<HttpsConnector<Connector>, HttpRequestBody>);

#[async_trait]
impl HttpService for HyperClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let body_seconds = request.body().content_length() as u64 / SLOWEST_BYTES_PER_SECOND;
        let limit = ANSWER_TIMEOUT + Duration::from_secs(body_seconds);
        let answered = tokio::time::timeout(limit, self.0.request(request)).await;
        let Ok(answered) = answered else {
            let silence = format!("no answer within {} seconds", limit.as_secs());
            return Err(HttpError::new(HttpErrorKind::Timeout, io::Error::other(silence)));
        };
        let answer = answered.map_err(|error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Request };
            HttpError::new(kind, io::Error::other(text(&error)))
        })?;
        let interrupted =
            |error: hyper::Error| HttpError::new(HttpErrorKind::Interrupted, io::Error::other(text(&error)));
        Ok(answer.map(|body| HttpResponseBody::new(body.map_err(interrupted))))
    }
}

/// An error with its causes, in one line.
pub fn text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let says = next.to_string();
        if !text.contains(&says) {
            // Writing to a string does not fail.
            let _ = write!(text, ": {says}");
        }
        cause = next.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
