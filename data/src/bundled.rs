//! Finding the MNIST that comes with the project.

use std::env;
use std::path::PathBuf;

use crate::DataError;
use crate::mnist::is_mnist;

const FOLDER: &str = "datasets/mnist";

/// The directory of the bundled MNIST: `datasets/mnist` in the current directory, else beside the program or above it,
/// else in the source tree that the program was built from.
///
/// # Errors
/// [`DataError::NotBundled`] when it is in none of these places.
///
/// # Examples
/// ```
/// assert!(lockstep_data::bundled_mnist()?.ends_with("mnist"));
/// # Ok::<(), lockstep_data::DataError>(())
/// ```
pub fn bundled_mnist() -> Result<PathBuf, DataError> {
    first_with_mnist(places())
}

fn places() -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from(FOLDER)];
    if let Ok(program) = env::current_exe() {
        places.extend(program.ancestors().skip(1).map(|folder| folder.join(FOLDER)));
    }
    places.push(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../datasets/mnist")));
    places
}

fn first_with_mnist(places: Vec<PathBuf>) -> Result<PathBuf, DataError> {
    match places.iter().find(|place| is_mnist(place)) {
        Some(place) => Ok(place.clone()),
        None => Err(DataError::NotBundled { tried: places }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_that_has_it_is_taken() {
        let empty = tempfile::tempdir().unwrap();
        let full = tempfile::tempdir().unwrap();
        std::fs::write(full.path().join("train-images.idx3-ubyte.gz"), [0]).unwrap();
        let places = vec![empty.path().to_owned(), full.path().to_owned(), PathBuf::from("later")];
        assert_eq!(first_with_mnist(places).unwrap(), full.path());
    }

    #[test]
    fn all_places_are_named_when_it_is_in_none() {
        let error = first_with_mnist(vec![PathBuf::from("a/b"), PathBuf::from("c")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the bundled MNIST is in none of a/b, c: run from a checkout, or give its directory as mnist:DIRECTORY"
        );
    }
}
