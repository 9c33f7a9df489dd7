//! Reads a Chrome trace one event at a time, so that memory does not grow with the file.

use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::event::{ChromeEvent, OtherData};
use crate::error::TraceError;

/// Reads a trace of either form (an object with `traceEvents`, or a bare array), hands each event
/// to `each`, and gives what the file says about itself.
pub(crate) fn read(
    path: &Path,
    mut each: impl FnMut(ChromeEvent),
) -> Result<OtherData, TraceError> {
    let file = File::open(path).map_err(TraceError::reading(path))?;
    let mut other_data = OtherData::default();
    let mut parser = serde_json::Deserializer::from_reader(BufReader::new(file));
    let trace = Trace { each: &mut each, other_data: &mut other_data };
    trace.deserialize(&mut parser).map_err(TraceError::parsing(path))?;
    parser.end().map_err(TraceError::parsing(path))?;
    Ok(other_data)
}

/// The whole file.
struct Trace<'a, F> {
    each: &'a mut F,
    other_data: &'a mut OtherData,
}

/// The array of events.
struct Events<'a, F>(&'a mut F);

impl<'de, F: FnMut(ChromeEvent)> DeserializeSeed<'de> for Trace<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, F: FnMut(ChromeEvent)> Visitor<'de> for Trace<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events, or an object with `traceEvents`")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, events: A) -> Result<(), A::Error> {
        Events(self.each).visit_seq(events)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_events = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => {
                    map.next_value_seed(Events(&mut *self.each))?;
                    has_events = true;
                }
                "otherData" => *self.other_data = map.next_value()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if has_events { Ok(()) } else { Err(serde::de::Error::missing_field("traceEvents")) }
    }
}

impl<'de, F: FnMut(ChromeEvent)> DeserializeSeed<'de> for Events<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(ChromeEvent)> Visitor<'de> for Events<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(event) = events.next_element()? {
            (self.0)(event);
        }
        Ok(())
    }
}
