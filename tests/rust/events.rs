//! What the bridge tells by its `tracing` events.

use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The events of the bridge, each as the values of its fields.
#[derive(Clone, Default)]
pub struct Events(Arc<Mutex<Vec<String>>>);

impl Visit for Events {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{field}={value:?}"));
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "cai_bridge"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Events {
    /// What `call` tells, and what it returns.
    pub fn by<R>(call: impl FnOnce() -> R) -> (Vec<String>, R) {
        let told = Self::default();
        let returned = tracing::subscriber::with_default(told.clone(), call);
        let fields = std::mem::take(&mut *told.0.lock().unwrap());
        (fields, returned)
    }
}

/// How often `wanted`, such as `order="made"`, is among the fields that were told.
pub fn count(told: &[String], wanted: &str) -> usize {
    told.iter().filter(|field| *field == wanted).count()
}
